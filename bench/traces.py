#!/usr/bin/env python3
"""An independent reader of PyTorch profiler traces, held against `tandem --json whatif`: one row per file.

It shares no code with tandem and uses the standard library alone. It loads a file as a whole, finds the
operator of a launch by going through all operators that contain it, and measures busy times by sweeping over
sorted ends of intervals. docs/whatif.md has the rules that both follow.

usage: traces.py TANDEM FILE..."""

import bisect
import collections
import decimal
import gzip
import json
import re
import subprocess
import sys

TOLERANCE_NS = 1000
OPERATORS = {"cpu_op", "Operator"}
NOTES = {"user_annotation"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
SLICES = ("nccl:", "gloo:", "ucc:", "mpi:")
CALLS = ("c10d::", "_c10d_functional::", "record_param_comms")


def nanoseconds(value):
    """A time in us, a number or a string, in whole ns; halves are rounded away from 0."""
    scaled = decimal.Decimal(str(value)) * 1000
    if not scaled.is_finite() or abs(scaled) > 2**61:
        raise ValueError("a time beyond 73 years")
    return int(scaled.to_integral_value(decimal.ROUND_HALF_UP))


def number(value, otherwise=-1):
    try:
        return int(str(value))
    except ValueError:
        return otherwise


def beginning(name):
    """As much of a name as every writer keeps."""
    return "".join(one if " " <= one <= "~" else "?" for one in name[:60])


class Slice:
    def __init__(self, event):
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        self.name = str(event["name"])
        self.thread = (str(event.get("pid")), str(event.get("tid")))
        self.begin = nanoseconds(event["ts"])
        took = nanoseconds(event["dur"])
        if not -(10**7) <= took <= 2**53:
            raise ValueError("a duration below -10 ms or above 104 days")
        self.end = self.begin + max(0, took)
        self.correlation = number(args.get("correlation"))
        self.external = number(args.get("External id", args.get("external id")))
        self.launch = None  # when it was launched
        self.operator = None


def union(intervals):
    """Sorted and disjoint."""
    joined = []
    for begin, end in sorted(one for one in intervals if one[0] < one[1]):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


def length(intervals, begin=None, end=None):
    total = 0
    for a, b in union(intervals):
        a, b = (a if begin is None else max(a, begin)), (b if end is None else min(b, end))
        total += max(0, b - a)
    return total


class Trace:
    """The events of one file, sorted into what they are."""

    def __init__(self, events):
        self.operators, self.windows, self.launches, self.kernels = [], [], [], []
        self.host = collections.defaultdict(list)  # source of communication → intervals
        self.rounding = 2000  # how much earlier than it does a slice of whole us may seem to end
        self.calls = calls = []
        for event in events:
            if not isinstance(event, dict) or event.get("ph") != "X":
                continue
            kind = self.kind(event)
            if kind is None or any(event.get(key) is None for key in ("name", "ts", "dur")):
                continue
            one = Slice(event)
            if one.begin % 1000 or one.end % 1000:
                self.rounding = 0
            if kind == "launch":
                self.launches.append(one)
            elif kind == "device":
                self.kernels.append(one)
            elif one.name.startswith("ProfilerStep#"):
                digits = re.match(r"\s*[-+]?[0-9]+", one.name[13:])
                self.windows.append([one.begin, one.end, int(digits.group()) if digits else 0])
            elif one.name.startswith(SLICES):
                self.host["slice"].append((one.begin, one.end))
                if kind == "operator":
                    self.operators.append(one)
            elif kind == "operator" and not one.name.startswith("Optimizer."):
                self.operators.append(one)
                if one.name.startswith(CALLS):
                    calls.append(one)
        self.host["call"] = [(one.begin, one.end) for one in calls]
        self.computing = self.outside_calls()
        self.join()
        self.place()

    @staticmethod
    def kind(event):
        category = str(event.get("cat", ""))
        if not category:
            process = str(event.get("pid"))
            return "device" if process.startswith("CUDA") else "operator" if process.startswith("CPU") else None
        if category in OPERATORS:
            return "operator"
        if category in NOTES:
            return "note"
        if category in DEVICE:
            return "device"
        return "launch" if category.endswith(("untime", "_driver")) else None

    def outside_calls(self):
        """Operators that are no collectives, and are called by none."""
        of_thread = collections.defaultdict(list)
        for index, one in enumerate(self.operators):
            one.order = (one.begin, -one.end, index)  # of those that begin and end together, the outer first
            if one.name.startswith(CALLS):
                of_thread[one.thread].append(one)

        def is_within(one):
            return any(
                one.begin < call.end and call.order < one.order and one.end <= call.end + self.rounding
                for call in of_thread[one.thread]
            )

        return [one for one in self.operators if not one.name.startswith(SLICES + CALLS) and not is_within(one)]

    def join(self):
        """Gives every kernel the time of its launch, and the innermost operator that contains the launch."""
        by_correlation, of_thread, by_id = collections.defaultdict(list), {}, {}
        for one in self.launches:
            if one.correlation > 0:
                by_correlation[one.correlation].append(one)
        for index, one in enumerate(self.operators):
            of_thread.setdefault(one.thread, []).append((one.begin, -one.end, index))
            if one.external >= 0:
                by_id[one.external] = one
        for of in of_thread.values():
            of.sort()
        covered = {thread: union((a, 1 - b) for a, b, _ in of) for thread, of in of_thread.items()}
        for kernel in self.kernels:
            launches = by_correlation.get(kernel.correlation, []) if kernel.correlation > 0 else []
            before = [one for one in launches if one.begin <= kernel.begin]
            launch = max(before, key=lambda one: one.begin) if before else None
            if launch is None and launches:
                launch = min(launches, key=lambda one: one.begin)
            owner = by_id.get(kernel.external) if kernel.external >= 0 else None
            kernel.is_launched = launch is not None
            if launch is not None:
                kernel.launch = launch.begin
                thread = launch.thread
                kernel.operator = self.innermost(
                    of_thread.get(thread, []), covered.get(thread, []), launch.begin
                )
            elif (
                owner is not None
                and not (kernel.correlation > 0 and kernel.external == kernel.correlation)
                and owner.begin <= kernel.end
            ):
                kernel.launch, kernel.operator = owner.begin, owner

    def innermost(self, of, covered, at):
        k = bisect.bisect_right(covered, [at, float("inf")]) - 1
        if k < 0 or at >= covered[k][1]:
            return None
        k = bisect.bisect_right(of, (at, float("inf"))) - 1
        while -of[k][1] < at:  # one contains it: the walk ends
            k -= 1
        return self.operators[of[k][2]]

    def window_of(self, at):
        k = bisect.bisect_right(self.begins, at) - 1
        return k if k >= 0 and at < self.windows[k][1] else None

    def merge_windows(self):
        merged = []
        for begin, end, step in sorted(self.windows, key=lambda one: (one[2], one[0])):
            if merged and merged[-1][2] == step and begin < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end, step])
        self.windows = sorted(merged, key=lambda one: (one[0], one[2]))
        self.begins = [one[0] for one in self.windows]

    def place(self):
        """Which kernels are whose step's, and which steps are fragments."""
        self.merge_windows()
        launched = [one.begin for one in self.kernels if one.is_launched]
        recorded_from = min(launched) if 2 * len(launched) > len(self.kernels) else None
        self.of_step = collections.defaultdict(list)
        self.between = collections.defaultdict(list)  # launched after window k − 1, in none
        for kernel in self.kernels:
            at = kernel.begin if kernel.launch is None else kernel.launch
            if kernel.launch is None and recorded_from is not None and kernel.begin < recorded_from:
                at = float("-inf")
            k = self.window_of(at)
            if k is not None:
                self.of_step[k].append(kernel)
            else:
                self.between[bisect.bisect_right(self.begins, at)].append(kernel)
        work = [len(self.of_step[k]) for k in range(len(self.windows))]
        if not any(work):
            for one in self.operators:
                k = self.window_of(one.begin)
                if k is not None:
                    work[k] += 1
        self.find_fragments(work)

    def find_fragments(self, work):
        self.fragments = set()
        ends = [0, len(work) - 1]
        if len(work) > 1 and work[-1] <= work[0]:
            ends.reverse()
        for k in ends if len(work) > 1 else []:
            others = [i for i in range(len(work)) if i != k and i not in self.fragments]
            least = min((work[i] for i in others), default=0)
            if least == 0:
                continue
            if len(others) > 1:
                cut = work[k] < 0.75 * least
            else:
                took = [end - begin for begin, end, _ in self.windows]
                cut = work[k] == 0 or (2 * work[k] < least and 2 * took[k] < took[others[0]])
            if cut:
                self.fragments.add(k)

    # --- Measuring ---

    @staticmethod
    def is_comm(kernel):
        name = kernel.name[5:] if kernel.name.startswith("void ") else kernel.name
        return name.startswith(("nccl", "rccl", "msccl"))

    def measure(self, kernels, begin, end):
        """Step, compute, communication, exposed and idle time."""
        host = [(one.begin, one.end) for one in self.computing]
        has_nccl = any(self.is_comm(one) for one in self.kernels)

        def cut(intervals):
            return [(max(a, begin), min(b, end)) for a, b in intervals]

        compute = [(one.begin, one.end) for one in kernels if not self.is_comm(one)]
        comm = [(one.begin, one.end) for one in kernels if self.is_comm(one)]
        if not self.kernels:
            compute = cut(host)
        if not has_nccl:
            comm = cut(self.host["slice"] or self.host["call"])
        exposed = length(compute + comm) - length(compute)
        idle = end - begin - length(compute + comm, begin, end)
        return [end - begin, length(compute), length(comm), exposed, idle]

    def steps(self):
        if not self.windows:
            busy = [(one.begin, one.end) for one in self.computing] + self.host["slice"] + self.host["call"]
            busy = [one for one in busy if one[0] < one[1]]
            busy += [(one.begin, one.end) for one in self.kernels]
            yield self.measure(self.kernels, min(a for a, _ in busy), max(b for _, b in busy))
            return
        before, is_first = None, True
        for k, (begin, end, _) in enumerate(self.windows):
            own = self.of_step[k]
            ends = [one.end for one in self.between[k]] + ([] if before is None else [before])
            before = max(ends, default=None)
            last = max((one.end for one in own), default=None)
            if k in self.fragments:
                before = max([one for one in (before, last) if one is not None], default=None)
                continue
            if before is not None and before > begin:
                start = before
            elif is_first and last is not None and last > end:
                first = [one.begin for one in own if one.launch is not None]
                start = max(begin, min(first + [last - (end - begin)]))
            else:
                start = begin
            stop = max(one for one in (start, end, last) if one is not None)
            yield self.measure(own, start, stop)
            before, is_first = stop if before is None else max(before, stop), False

    def summary(self):
        steps = list(self.steps())
        mean = [sum(one[i] for one in steps) / len(steps) for i in range(5)]
        without = sum(one.operator is None for one in self.kernels)
        return len(self.kernels), without, len(steps), len(self.fragments), mean

    def is_empty(self):
        return not (self.operators or self.kernels or self.windows or self.host["slice"])

    def by_operator(self):
        """Times on the device by the beginning of the operator's name."""
        times = collections.Counter()
        for one in self.kernels:
            if one.operator is not None:
                times[beginning(one.operator.name)] += one.end - one.begin
        return times


def read_events(path):
    """The events of a file; None where it is JSON of another kind."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    text = data.decode("utf-8-sig", "replace")
    options = {"strict": False, "parse_float": decimal.Decimal}
    try:
        whole = json.loads(text, **options)
    except ValueError:  # Kineto writes backslashes of names as they are
        whole = json.loads(re.sub(r'\\(?!["\\/bfnrtu])', r"\\\\", text), **options)
    events = whole if isinstance(whole, list) else whole.get("traceEvents")
    return events if isinstance(events, list) else None


def ask(tandem, path):
    run = subprocess.run([tandem, "--json", "whatif", path], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout, run.stderr


def check_other_kind(name, code, error, is_whole):
    if code == 0:  # a step that tandem wrote, or JSON with faults that this reader does not know
        print(f"{name:44.44} not compared")
        return None
    is_right = code == 3 and ("cut off" in error) != is_whole
    kind = "JSON of another kind" if is_whole else "no whole JSON"
    print(f"{name:44.44} {kind}: exit code {code}{'' if is_right else '   WRONG'}")
    return is_right


def operators_differ(trace, answer):
    """The largest difference of an operator's time on the device."""
    times = collections.Counter()
    for row in answer["by_operator"]:
        if row["pass"] != "unknown":
            times[beginning(row["name"])] += row["device_ns"]
    own = trace.by_operator()
    return max((abs(times[name] - own[name]) for name in set(times) | set(own)), default=0)


def check(tandem, path):
    name = path.rsplit("/", 1)[-1]
    code, out, error = ask(tandem, path)
    try:
        events = read_events(path)
    except (ValueError, EOFError, OSError):
        return check_other_kind(name, code, error, False)
    try:
        trace = Trace(events or [])
    except (ValueError, ArithmeticError):  # no valid time
        return check_other_kind(name, code, error, True)
    if trace.is_empty():
        return check_other_kind(name, code, error, True)
    if code != 0:
        print(f"{name:44.44} exit code {code}: {error.strip()}   WRONG")
        return False
    answer = json.loads(out)
    rank = answer["ranks"][0]
    n_kernel, n_without, n_step, n_fragment, mean = trace.summary()
    members = ("step_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "idle_ns")
    worst = max(abs(rank[member] - value) for member, value in zip(members, mean))
    worst = max(worst, operators_differ(trace, answer))
    counts = (
        rank["kernels"],
        rank["left_out"]["kernels_without_operator"],
        len(rank["steps"]),
        len(rank["fragments"]),
    )
    is_right = worst <= TOLERANCE_NS and counts == (n_kernel, n_without, n_step, n_fragment)
    times = " ".join(f"{value / 1000:14.3f}" for value in mean[:4])
    print(
        f"{name:44.44} {n_kernel:7d} {n_kernel - n_without:7d} {n_without:7d} {n_step:5d} {n_fragment:5d} {times} "
        f"{worst / 1000:9.3f}{'' if is_right else f'   WRONG: tandem has {counts}'}"
    )
    if not is_right:
        for member, value in zip(members, mean):
            print(f"    {member}: tandem {rank[member]}, here {value:.1f}")
    return is_right


def main():
    tandem, paths = sys.argv[1], sys.argv[2:]
    print(
        f"{'times in us; without: no operator':44} {'kernels':>7} {'joined':>7} {'without':>7} {'steps':>5} "
        f"{'cut':>5} {'step':>14} {'compute':>14} {'communication':>14} {'exposed':>14} {'differ by':>9}"
    )
    results = [check(tandem, path) for path in paths]
    print(f"{len(paths)} files, {results.count(False)} differ, {results.count(None)} not compared")
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
