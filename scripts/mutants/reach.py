"""Which test reaches which line: each test runs once in a tree that is built with gcov's counters."""
import json
import os
import shutil
import subprocess

from run import run_test
from tree import hash_of

LEAVE = """/* In a build that counts lines: a process that leaves by _exit reports what it counted, too. */
#ifndef __ASSEMBLER__
#include <unistd.h>
#ifdef __cplusplus
extern "C" void __gcov_dump(void);
#else
extern void __gcov_dump(void);
#endif
__attribute__((noreturn, unused)) static inline void leave_and_report(int code)
{
    __gcov_dump();
    _exit(code);
}
#define _exit(code) leave_and_report(code)
#endif
"""


def counting_variables(folder):
    """Variables of make for a tree that counts."""
    header = os.path.join(folder, "leave.h")
    os.makedirs(folder, exist_ok=True)
    with open(header, "w", encoding="utf-8") as file:
        file.write(LEAVE)
    return ["NVCC=", "WARN=-w", "HARDEN=", f"OPT=-O1 --coverage -include {header}", "LDFLAGS=-Wl,-z,relro,-z,now --coverage"]


def name_of_file(test):
    return test.replace("/", "--").replace(" ", "---") + ".json"


def mask_of(lines):
    """A set of lines as the bits of a number: thousands of lines of hundreds of tests stay small."""
    mask = 0
    for line in lines:
        mask |= 1 << line
    return mask


def counts_of(folder, tree, product):
    """Reads what a run left under `folder`: for each source of the product its lines with code, and those that ran."""
    counters = [os.path.join(at, name) for at, _, files in os.walk(folder) for name in files if name.endswith(".gcda")]
    lines, hit = {}, {}
    counters = [path for path in counters if "/obj/tests/" not in path and "/build/tests/" not in path]
    for path in counters:
        notes = path[len(folder):-5] + ".gcno"
        if os.path.exists(notes):
            os.symlink(notes, path[:-5] + ".gcno")
    for first in range(0, len(counters), 100):
        shown = subprocess.run(["gcov", "--json-format", "--stdout", *counters[first:first + 100]], cwd=tree.path,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
        for text in shown.splitlines():
            if not text.startswith(b"{"):
                continue
            for file in json.loads(text)["files"]:
                name = os.path.relpath(os.path.join(tree.path, file["file"]), tree.path)
                if name in product:
                    lines[name] = lines.get(name, 0) | mask_of(line["line_number"] for line in file["lines"])
                    hit[name] = hit.get(name, 0) | mask_of(line["line_number"] for line in file["lines"] if line["count"])
    return lines, {name: of for name, of in hit.items() if of}


class Reach:
    """The map in `folder`, one file a test: it is made where it is missing or of other sources."""

    def __init__(self, folder, product_hash, product):
        self.folder, self.product_hash, self.product = folder, product_hash, set(product)
        self.hit, self.lines = {}, {}
        os.makedirs(folder, exist_ok=True)

    def key_of(self, root, test):
        name = "tests/" + (test.split(" ")[0] if ".sh" in test else test + ".c")
        return self.product_hash + hash_of(root, [name])

    def find(self, root, test):
        """1 where the map has the test, as it is."""
        try:
            with open(os.path.join(self.folder, name_of_file(test)), encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError):
            return False
        if known["key"] != self.key_of(root, test):
            return False
        self.hit[test] = {name: int(hit, 16) for name, hit in known["hit"].items()}
        for name, lines in known["lines"].items():
            self.lines[name] = self.lines.get(name, 0) | int(lines, 16)
        return True

    def measure(self, root, tree, test, least_s):
        """Runs the test in the tree that counts, and adds it to the map. Returns the run."""
        counts = os.path.join(self.folder, name_of_file(test) + ".counts")
        shutil.rmtree(counts, ignore_errors=True)
        os.makedirs(counts)
        run = run_test(tree, test, 60, least_s, environment={"GCOV_PREFIX": counts})
        lines, hit = counts_of(counts, tree, self.product)
        shutil.rmtree(counts, ignore_errors=True)
        path = os.path.join(self.folder, name_of_file(test))
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"key": self.key_of(root, test), "lines": {name: f"{of:x}" for name, of in sorted(lines.items())},
                       "hit": {name: f"{of:x}" for name, of in sorted(hit.items())}}, file)
        os.replace(path + ".new", path)
        self.find(root, test)
        return run

    def tests_of(self, name, line, text):
        """The tests that reach a line: where it has no code, the line before it within its function; of a table, those of its file."""
        code, at, rows = self.lines.get(name, 0), line, text.split("\n")
        while at > 0 and not code >> at & 1 and not rows[at - 1].startswith("}"):
            at -= 1
        is_inside = at > 0 and code >> at & 1
        return [test for test, hit in self.hit.items() if (hit.get(name, 0) >> at & 1 if is_inside else hit.get(name, 0))]
