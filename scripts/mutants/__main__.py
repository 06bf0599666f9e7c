"""Breaks lines of the product, one at a time, and says which breaks no test notices; `make mutants` runs it.

Lines are drawn by a seed from the sources of the product's folders, and each is broken in one place (breaks.py). All of it happens in copies
of the tree, in --folder. A map of which test reaches which line (reach.py) says which tests run, those that take least time first, until one
fails twice or hangs. Each step goes on where it was stopped. docs/mutants.md explains the table."""
import argparse
import concurrent.futures
import json
import os
import queue
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from reach import Reach, counting_variables  # noqa: E402
from records import Records, code, is_judged, judged_rows, read_by_hand, table_of  # noqa: E402
from run import run_test  # noqa: E402
from tree import Tree, hash_of, tracked_files  # noqa: E402
from trial import Bench, Usual, draw_breaks, draw_lines, read_text  # noqa: E402


def say(text):
    print(text, flush=True)


def read_options():
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--root", default=".", help="the working tree [.]")
    parser.add_argument("--folder", default="build/mutants", help="where copies and records are [build/mutants]")
    parser.add_argument("--sources", required=True, help="folders of the product, with blanks between them")
    parser.add_argument("--programs", required=True, help="test programs: unit/test_x of tests/unit/test_x.c")
    parser.add_argument("--scripts", default="", help="test scripts: cli/test_x.sh of tests/cli/test_x.sh")
    parser.add_argument("--products", default="all", help="targets of make that scripts need")
    parser.add_argument("--only", default="", help="tests whose names begin so")
    parser.add_argument("--seed", type=int, default=1, help="draws the lines [1]")
    parser.add_argument("--number", type=int, default=200, help="breaks that count [200]")
    parser.add_argument("--tests", type=int, default=40, help="tests for one break, at most [40]")
    parser.add_argument("--test-seconds", type=float, default=240, help="their time where nothing is broken, at most [240]")
    parser.add_argument("--least-seconds", type=int, default=20, help="processor time that no test is stopped before [20]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="trees in which breaks are tried at a time")
    parser.add_argument("--survivors", action="store_true", help="try what survived again, with the tests as they are")
    parser.add_argument("--table", action="store_true", help="print the table of the records, and try nothing")
    options = parser.parse_args()
    options.root, options.folder = os.path.abspath(options.root), os.path.abspath(options.folder)
    options.products = options.products.split()
    return options


def tests_of(options):
    """Names of tests; each command line of tests/cli/run.sh is one of its own."""
    tests = options.programs.split()
    for script in options.scripts.split():
        lines = sorted(name[:-4] for name in os.listdir(os.path.join(options.root, "tests/cli")) if name.endswith(".cmd")) \
            if script == "cli/run.sh" else []
        tests += [f"{script} {name}" for name in lines] or [script]
    words = options.only.split()
    return [test for test in tests if not words or any(test.startswith(word) for word in words)]


def sources_of(options):
    folders = tuple(folder + "/" for folder in options.sources.split())
    return [name for name in tracked_files(options.root) if name.startswith(folders) and name.endswith((".c", ".py"))]


def each_in_parallel(items, n, work):
    """work(worker's number, item) of all items; n at a time."""
    waiting = queue.Queue()
    for item in items:
        waiting.put(item)

    def go(worker):
        while True:
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            work(worker, item)

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        for done in [pool.submit(go, worker) for worker in range(n)]:
            done.result()


def targets_of(options, tests):
    """What is built of a tree."""
    return [*options.products, *(f"build/tests/{test}" for test in tests if ".sh" not in test)]


def open_reach(options, tests, sources):
    reach = Reach(os.path.join(options.folder, "reach"), hash_of(options.root, sources), sources)
    missing = [test for test in tests if not reach.find(options.root, test)]
    if not missing:
        return reach
    say(f"mutants: {len(missing)} of {len(tests)} tests are run to find which lines they reach")
    folder = os.path.join(options.folder, "coverage")
    tree = Tree(options.root, folder, counting_variables(options.folder), targets_of(options, tests))
    tree.build(os.cpu_count())

    def measure(_, test):
        run = reach.measure(options.root, tree, test, options.least_seconds)
        say(f"reach    {test}: {run.seconds:.1f} s{'' if run.is_passed else ', skipped' if run.is_skipped else ', NOT PASSED'}")

    each_in_parallel(missing, options.jobs, measure)
    return reach


def read_usual(path, key):
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):
        return {}
    return {test: Usual(*of) for test, of in known["tests"].items()} if known["key"] == key else {}


def open_usual(options, trees, tests, key):
    """How each test ends where nothing is broken; what does not pass there can notice nothing."""
    path = os.path.join(options.folder, "usual.json")
    usual, is_written = read_usual(path, key), threading.Lock()

    def measure(worker, test):
        run = run_test(trees[worker], test, 60, options.least_seconds)
        why = "" if run.is_passed else "skipped" if run.is_skipped else "does not pass"
        say(f"usual    {test}: {run.seconds:.1f} s {why}")
        with is_written:
            usual[test] = Usual(run.seconds, run.is_passed, why)
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump({"key": key, "tests": usual}, file)
            os.replace(path + ".new", path)

    missing = [test for test in tests if test not in usual]
    each_in_parallel(missing, options.jobs, measure)
    return {test: usual[test] for test in tests}


def describe(row):
    change = f"{code(row['was'], 50)} -> {code(row['is'], 50) if row['is'].strip() else 'dropped'}"
    by = f" by {row['by']}" if "by" in row else f" of {row['tests']} tests" if "tests" in row else ""
    return f"{row['verdict']:<12} {row['seconds']:6.1f} s  {row['file']}:{row['line']} {row['kind']} {change}{by}"


def try_line(bench, options, n, name, line):
    """The record of the first break of a line that compiles."""
    text, row = read_text(os.path.join(options.root, name)), None
    for broken in draw_breaks(name, line, text, options.seed):
        row = bench.try_break(name, text, broken)
        if row["verdict"] != "not compiled":
            break
    return {"n": n, **row}


def hunt(options, benches, records, by_hand, sources):
    lines = draw_lines(options.root, sources, options.seed)

    def is_enough():
        return sum(is_judged(row, by_hand) for row in list(records.known.values())) >= options.number

    def work(worker, item):
        n, (name, line) = item
        if n in records.known or is_enough():
            return
        row = try_line(benches[worker], options, n, name, line)
        records.add(row)
        say(describe(row))

    each_in_parallel(list(enumerate(lines)), len(benches), work)


def try_survivors(options, benches, records, by_hand):
    """Survivors again; a line is found by its text where the file has changed."""
    def work(worker, row):
        text = read_text(os.path.join(options.root, row["file"]))
        again = [of for of in draw_breaks(row["file"], row["line"], text, options.seed)
                 if text[of.start:of.end] == row["was"] and of.new == row["is"]]
        if not again:
            say(f"mutants: {row['file']}:{row['line']} is another line now; run it again")
            return
        found = {"n": row["n"], **benches[worker].try_break(row["file"], text, again[0])}
        records.add(found)
        say(describe(found))

    survivors = [row for row in records.known.values() if row["verdict"] == "survived" and is_judged(row, by_hand)]
    each_in_parallel(survivors, len(benches), work)


def open_benches(options, reach, tests, key):
    trees = [Tree(options.root, os.path.join(options.folder, f"tree-{i + 1}"), ["NVCC=", "OPT=-O2"], targets_of(options, tests))
             for i in range(options.jobs)]
    for tree in trees:
        say(f"mutants: building {os.path.relpath(tree.path, options.root)}")
        if not os.path.exists(tree.path) and tree is not trees[0]:  # all within it is relative to it
            shutil.copytree(trees[0].path, tree.path + ".new", symlinks=True)
            os.rename(tree.path + ".new", tree.path)
        tree.build(os.cpu_count())
    usual = open_usual(options, trees, tests, key)
    unusable = sorted(f"{test} ({of.why})" for test, of in usual.items() if not of.is_usable)
    if unusable:
        say(f"mutants: {len(unusable)} tests notice nothing here: {', '.join(unusable)}")
    return [Bench(tree, reach, usual, options) for tree in trees], usual


def main():
    options = read_options()
    sources, tests = sources_of(options), tests_of(options)
    if not sources or not tests:
        raise SystemExit("mutants: there are no sources, or no tests, of these names")
    key = hash_of(options.root, sources)
    head = {"seed": options.seed, "sources": key, "tests": options.tests, "test_seconds": options.test_seconds, "only": options.only}
    os.makedirs(options.folder, exist_ok=True)
    by_hand = read_by_hand(os.path.join(options.root, "scripts/mutants/set_aside.tsv"))
    records = Records(os.path.join(options.folder, f"seed-{options.seed}.jsonl"), head)
    begin = time.monotonic()
    if not options.table:
        reach = open_reach(options, tests, sources)
        benches, usual = open_benches(options, reach, tests, key)
        if any(name.endswith(".py") for name in sources) and not any(of.is_usable and test.startswith("python/")
                                                                       for test, of in usual.items()):
            say("mutants: no test of the Python package runs here, so that none of its lines is broken")
            sources = [name for name in sources if not name.endswith(".py")]
        if options.survivors:
            try_survivors(options, benches, records, by_hand)
        else:
            hunt(options, benches, records, by_hand, sources)
        say(f"mutants: {time.monotonic() - begin:.0f} s")
    counted, _ = judged_rows(records.known, by_hand, options.number)
    print(table_of(records.known, by_hand, head, options.number), end="")
    return 0 if len(counted) == options.number else 1


if __name__ == "__main__":
    sys.exit(main())
