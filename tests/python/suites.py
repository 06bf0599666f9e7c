"""Runs files of tests here, each in a process of its own that has PyTorch already: to load it takes longer than most
of their tests. Speaks TAP. usage: suites.py SUITE…: FILE or FILE.WORDS, those of its tests that hold the words."""

import os
import runpy
import signal
import sys
import tempfile

import torch  # noqa: F401

MOST_SECONDS = 200
HERE = os.path.dirname(os.path.abspath(__file__))


def run_suite(suite, log):
    """In the child: the file as Python runs it, its output in `log`. Leaves by SystemExit, so that what a file does at
    its end is done."""
    name, _, words = suite.partition(".")
    path = os.path.join(HERE, name + ".py")
    os.setpgid(0, 0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    sys.argv = [path, *(["-k", words] if words else [])]
    runpy.run_path(path, run_name="__main__")
    sys.exit(0)


def end_of(child):
    """How it ended: '' where it is good. One that is not done in its time is ended, with its own children."""

    def too_late(*_):
        os.killpg(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(MOST_SECONDS)
    _, state = os.waitpid(child, 0)
    is_late = signal.alarm(0) == 0
    if os.WIFSIGNALED(state):
        return f"not done in {MOST_SECONDS} s" if is_late else f"ended by signal {os.WTERMSIG(state)}"
    return f"exit code {os.WEXITSTATUS(state)}" if os.WEXITSTATUS(state) else ""


def main():
    failed = 0
    for number, suite in enumerate(sys.argv[1:], 1):
        with tempfile.TemporaryFile("w+", errors="replace") as log:
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                run_suite(suite, log)
            why = end_of(child)
            log.seek(0)
            lines = log.read().splitlines()
        if why:
            failed = 1
            print(f"not ok {number} - {suite}")
            print(*(f"# {line}" for line in [*lines, why]), sep="\n", flush=True)
        else:
            result = [f"ok {number} - {suite}", *(line for line in lines if line.startswith("SKIP: "))]
            print("\n".join(result), flush=True)
    print(f"1..{len(sys.argv) - 1}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
