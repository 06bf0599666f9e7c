#!/usr/bin/env python3
"""Holds the answers of `tandem allocate` against every plan there is: see README.md in this folder.

usage: check_truth.py BUILD [--from N] [--to N] [--problem N]… [--seed N] [--jobs N] [--store FOLDER] [--tap]"""

import argparse
import fcntl
import hashlib
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback

import checks
import models
import costs
import problems

N_PROBLEM = 300


def measure(tandem, model, devices, path):
    """Costs of devices alone and beside each other, and of their all-reduce; with micro-steps and a norm."""
    for group in [*itertools.combinations(devices, 2), devices] if len(devices) > 2 else [devices]:
        costs.run([tandem.program, "profile", "--model", model, "--batch", str(problems.MEASURED_BATCH), "--device",
                    ",".join(group), "--db", path, "-q", "--loss-scale", "dynamic", "--accumulate", "2"])


def store_of(tandem, problem, folder):
    """The store of a problem: sensitivities of its model, and costs of the devices that are measured. Made once."""
    if problem.model.endswith(".onnx"):
        problem.model = os.path.join(folder, problem.model)
    devices = sorted(problem.measured)
    name = hashlib.sha256(f"{os.path.basename(problem.model)} {','.join(devices)}".encode()).hexdigest()[:12]
    path = os.path.join(folder, name + ".db")
    with open(os.path.join(folder, name + ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            part = path[:-3] + ".part.db"
            estimate = [tandem.program, "sensitivity", "--model", problem.model, "--data", folder, "--db", part, "-q"]
            costs.run(estimate + ["--steps", "40"])
            costs.run(estimate + ["--by", "statistics", "--steps", "4"])
            if devices:
                measure(tandem, problem.model, devices, part)
            os.rename(part, path)
    return path


def make_folder(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "inputs.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, "inputs.made")):
            models.write_models(folder)
            models.write_images(folder)
            with open(os.path.join(folder, "inputs.made"), "w", encoding="utf-8"):
                pass


def judge(task):
    """Judges one problem; in a process of its own."""
    number, options = task
    begin = time.monotonic()
    tandem = costs.Tandem(options.build)
    problem = problems.draw_problem(number, options.seed, tandem.of_device())
    if not tandem.takes_clip:
        problem.clip = None
    absent = [name for name in problem.measured if not tandem.devices[name]["present"]]
    if absent:
        return {"number": number, "skipped": f"this CPU lacks {absent[0]}"}
    with tempfile.TemporaryDirectory(prefix="truth-") as folder:
        try:
            found = checks.check(tandem, problem, store_of(tandem, problem, options.store), folder)
        except costs.Failure as failure:
            found = checks.Findings(problem)
            found.add("i", str(failure))
        except Exception as failure:  # a value that is not there, or of another kind: the other problems go on
            found = checks.Findings(problem)
            found.add("i", f"an answer that cannot be read: {traceback.format_exc().strip().splitlines()[-3:]}, {failure!r}")
    return {"number": number, "seconds": time.monotonic() - begin, **found.summary()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", type=int, default=N_PROBLEM)
    parser.add_argument("--problem", type=int, action="append")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--store")
    parser.add_argument("--tap", action="store_true")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.store = os.path.abspath(options.store or os.path.join(options.build, "truth"))
    make_folder(options.store)
    numbers = options.problem or range(options.first, options.to + 1)
    results, begin = [], time.monotonic()
    with multiprocessing.Pool(options.jobs) as pool:
        for one in pool.imap(judge, [(n, options) for n in numbers]):
            results.append(one)
            options.n_done = len(results)
            checks.print_result(one, options)
    return checks.print_summary(results, options, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
