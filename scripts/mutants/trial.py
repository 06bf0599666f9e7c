"""One break: it is put into a tree, compiled, and the tests that reach it run until one notices it."""
import collections
import os
import py_compile
import random
import shutil
import subprocess
import tempfile
import time

from breaks import KINDS, breaks_of
from records import COMPILER
from run import run_test
from tree import BuildFailed, read_bytes

TRIES = 8  # breaks of a drawn line, until one compiles
# Warnings are errors, as in scripts/check.sh. A call that is dropped leaves an empty statement, which is not what is broken.
WARNINGS = "WERROR=-Werror -Wno-error=empty-body"
Usual = collections.namedtuple("Usual", "seconds is_usable why")  # how a test ends where nothing is broken


def read_text(path):
    return read_bytes(path).decode()


def with_break(text, broken):
    return text[:broken.start] + broken.new + text[broken.end:]


def lines_with_breaks(root, names):
    """Of all sources: [(name, line)], each of which can be broken."""
    return [(name, line) for name in names
            for line in sorted({of.line for of in breaks_of(name, read_text(os.path.join(root, name)))})]


def draw_lines(root, names, seed):
    """All lines that can be broken, in the order that the seed draws them in."""
    lines = lines_with_breaks(root, names)
    random.Random(f"lines {seed}").shuffle(lines)
    return lines


def draw_breaks(name, line, text, seed):
    """The breaks of a line in the order in which they are tried: kinds in a drawn order, of each a drawn break."""
    dice = random.Random(f"breaks {seed} {name} {line}")
    of_line = [of for of in breaks_of(name, text) if of.line == line]
    kinds = [[of for of in of_line if of.kind == kind] for kind in KINDS]
    kinds = [of for of in kinds if of]
    dice.shuffle(kinds)
    for of in kinds:
        dice.shuffle(of)
    return [of[i] for i in range(max(map(len, kinds), default=0)) for of in kinds if i < len(of)][:TRIES]


def code_of(path):
    """The bytes of an object without what a debugger reads."""
    with tempfile.NamedTemporaryFile(suffix=".o") as bare:
        subprocess.run(["objcopy", "--strip-debug", path, bare.name], check=True)
        return read_bytes(bare.name)


class Bench:
    """A tree in which breaks are tried, and what is known of the tests."""

    def __init__(self, tree, reach, usual, options):
        self.tree, self.reach, self.usual, self.options = tree, reach, usual, options
        self.objects = tree.objects_of()

    def compile(self, name, text):
        """Puts the text in the place of a source. What compiling says: "same code", "not compiled", "warned", or None."""
        objects = self.objects.get(name, [])
        with open(self.tree.at(name), "w", encoding="utf-8") as file:
            file.write(text)
        if name.endswith(".py"):
            return self.compile_python(name)
        before = [code_of(self.tree.at(of)) for of in objects]
        is_silent = self.is_made(WARNINGS, *objects)
        if not is_silent and not self.is_made(*objects):
            return "not compiled"
        return "same code" if before == [code_of(self.tree.at(of)) for of in objects] else None if is_silent else "warned"

    def is_made(self, *targets):
        try:
            self.tree.make(*targets)
        except BuildFailed:
            return False
        return True

    def compile_python(self, name):
        try:
            with tempfile.NamedTemporaryFile(suffix=".pyc") as out:
                py_compile.compile(self.tree.at(name), cfile=out.name, doraise=True)
        except py_compile.PyCompileError:
            return "not compiled"
        return None

    def restore(self, name, text, kept):
        """The source as it was; its objects are newer than what was linked, so that make links that again."""
        with open(self.tree.at(name), "w", encoding="utf-8") as file:
            file.write(text)
        for path, copy in kept.items():
            shutil.copyfile(copy, self.tree.at(path))
            os.remove(copy)

    def try_break(self, name, text, broken):
        """The record of a break."""
        begin = time.monotonic()
        kept = {}
        for path in self.objects.get(name, []):
            kept[path] = self.tree.at(path) + ".whole"
            shutil.copyfile(self.tree.at(path), kept[path])
        record = {"file": name, "line": broken.line, "kind": broken.kind, "before": text.split("\n")[broken.line - 1].strip(),
                  "was": text[broken.start:broken.end], "is": broken.new}
        try:
            why = self.compile(name, with_break(text, broken))
            record.update(self.notice(name, broken.line, text) if why is None else
                          {"verdict": "noticed", "by": COMPILER, "how": "warns", "tests": 0} if why == "warned" else {"verdict": why})
        finally:
            self.restore(name, text, kept)
        record["seconds"] = round(time.monotonic() - begin, 1)
        return record

    def chosen_tests(self, name, line, text):
        """(tests in the order of their time, how many others reach the line): as many as the limits allow."""
        if name.endswith(".py"):
            reached = [test for test in self.usual if test.split("/")[0] in ("python", "torch")]
        else:
            reached = self.reach.tests_of(name, line, text)
        reached = sorted((test for test in reached if test in self.usual and self.usual[test].is_usable),
                         key=lambda test: (self.usual[test].seconds, test))
        chosen, sum_s = [], 0
        for test in reached:
            sum_s += self.usual[test].seconds
            if len(chosen) == self.options.tests or sum_s > self.options.test_seconds and chosen:
                break
            chosen.append(test)
        return chosen, len(reached) - len(chosen)

    def notice(self, name, line, text):
        chosen, n_others = self.chosen_tests(name, line, text)
        if not chosen:
            return {"verdict": "survived", "tests": 0, "others": 0}
        try:
            self.tree.make(*self.options.products)
        except BuildFailed:
            return {"verdict": "not compiled"}
        for n, test in enumerate(chosen, 1):
            try:
                program = None if ".sh" in test else self.tree.relink(test)
            except BuildFailed:
                return {"verdict": "not compiled"}
            run = run_test(self.tree, test, self.usual[test].seconds, self.options.least_seconds, program)
            if not run.is_passed and not run.is_hung:  # a test that fails by chance does so once
                run = run_test(self.tree, test, self.usual[test].seconds, self.options.least_seconds, program)
            if not run.is_passed:
                return {"verdict": "noticed", "by": test, "how": "hangs" if run.is_hung else "fails", "tests": n}
        return {"verdict": "survived", "tests": len(chosen), "others": n_others}
