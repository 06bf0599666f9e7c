"""Runs one test in a tree: whether it passes, in which time, and nothing of it is left."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

MARK = "TANDEM_BROKEN_TRIAL"
DATA_KIB, DISK_BYTES = (12 << 30) // 1024, 16 << 30


class Run:
    """How a test ended: is_passed, is_skipped (it tested nothing), is_hung, seconds, text (the end of what it printed)."""

    def __init__(self, is_passed, is_skipped, is_hung, seconds, text):
        self.is_passed, self.is_skipped, self.is_hung, self.seconds, self.text = is_passed, is_skipped, is_hung, seconds, text


def command_of(test, program):
    """test: unit/test_x, cli/test_x.sh, or cli/run.sh NAME. program: what is run in the place of build/tests/unit/test_x."""
    if ".sh" not in test:
        return [program or f"build/tests/{test}"]
    script, *words = test.split(" ")
    return [f"tests/{script}", *words]


def judge(code, text):
    """As scripts/run_tests.sh: TAP that ends early has failed, too. (is_passed, is_skipped)"""
    planned = [int(n) for n in re.findall(r"^1\.\.(\d+)\s*$", text, re.M)]
    results = re.findall(r"^(not )?ok \d+(.*)$", text, re.M)
    n_skipped = sum("# SKIP" in rest for _, rest in results)
    is_passed = code == 0 and not any(no and "# SKIP" not in rest for no, rest in results)
    if planned and sum(planned) != len(results):
        is_passed = False
    is_skipped = code == 0 and (re.search(r"^1\.\.0 # SKIP", text, re.M) is not None or bool(results) and n_skipped == len(results))
    return is_passed and not is_skipped, is_skipped


def end_all_of(mark):
    """Ends, by their ids, all processes that have this mark in their environment."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                is_ours = f"{MARK}={mark}".encode() in file.read().split(b"\0")
            if is_ours:
                os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass  # it has ended, or is another user's


def limited(command, seconds):
    """The command with limits of each process: processor time and memory. Soft ones: tests set limits of their own. None of a file's
    size: with one, ranks share no memory."""
    return ["sh", "-c", f"ulimit -S -c 0 && ulimit -S -t {int(seconds)} && ulimit -S -d {DATA_KIB} && "
            'exec "$@"', "sh", *command]


def wait_within(child, seconds, folder):
    """The exit code; None after so many seconds, or where the disk has lost 16 GiB."""
    end, free = time.monotonic() + seconds, shutil.disk_usage(folder).free
    while time.monotonic() < end and shutil.disk_usage(folder).free > free - DISK_BYTES:
        try:
            return child.wait(timeout=min(1, seconds))
        except subprocess.TimeoutExpired:
            pass
    return None


def run_test(tree, test, usual_s, least_s, program=None, environment=None):
    """usual_s: what it takes where nothing is broken. A test hangs that takes 20 times that and three times least_s, or in one process ten
    times its processor time and least_s: load alone does not do it."""
    work = tempfile.mkdtemp(prefix="m")
    mark = os.path.basename(work)
    own = {**os.environ, "CMOCKA_MESSAGE_OUTPUT": "TAP", "TANDEM_BUILD": "build", "OMP_NUM_THREADS": "1", "TMPDIR": work,
           MARK: mark, **(environment or {})}
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        own.pop(name, None)
    begin, is_hung, code = time.monotonic(), False, None
    with open(os.path.join(work, ".log"), "w+b") as log:
        child = subprocess.Popen(limited(command_of(test, program), least_s + 10 * usual_s), cwd=tree.path, env=own, stdin=subprocess.DEVNULL,
                                 stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        code = wait_within(child, 3 * least_s + 20 * usual_s, work)
        is_hung = code is None
        end_all_of(mark)
        child.wait()
        seconds = time.monotonic() - begin
        log.seek(max(0, log.seek(0, 2) - (1 << 20)))
        text = log.read().decode(errors="replace")
    shutil.rmtree(work, ignore_errors=True)
    if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU, -signal.SIGKILL):  # by its limits
        is_hung = True
    is_passed, is_skipped = judge(code, text) if not is_hung else (False, False)
    return Run(is_passed, is_skipped, is_hung, seconds, text[-2000:])
