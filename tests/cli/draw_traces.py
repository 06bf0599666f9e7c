"""Draws traces as versions of the PyTorch profiler of many ages write them: draw_traces.py FOLDER N SEED.

Each trace mixes what real ones have: launches of several runtimes, External ids that are correlations, hosts
that run ahead, steps that are cut off, several streams and threads, copies, annotations of the device, Python
functions, NCCL with and without sequence numbers, times as numbers or strings, whole us or parts, ids in
quotes, missing durations, correlation 0, categories that nobody knows."""

import gzip
import json
import math
import os
import random
import sys

RUNTIMES = [
    ("cuda_runtime", "cudaLaunchKernel"),
    ("cuda_driver", "cuLaunchKernelEx"),
    ("cuda_runtime", "hipExtModuleLaunchKernel"),
    ("Runtime", "cudaLaunchKernel"),
    ("xpu_runtime", "urEnqueueKernelLaunch"),
]
OPERATORS = ["aten::mm", "aten::add_", "aten::to", "aten::copy_", "c10d::allreduce_", "triton_poi_0", "forward"]


class Number(float):
    """A number that is written as its text: a double has no ns in the times of today."""

    def __new__(cls, text):
        made = super().__new__(cls, float(text))
        made.text = text
        return made

    def __repr__(self):
        return self.text


class Drawn:
    def __init__(self, draw):
        self.draw = draw
        self.events = []
        self.is_whole_us = draw.random() < 0.5
        self.is_text = draw.random() < 0.2
        self.quotes = draw.random() < 0.3
        self.id_kind = draw.choice(["correlation", "operator", "none"])
        self.runtime = draw.choice(RUNTIMES)
        self.is_old = draw.random() < 0.2
        self.correlation = draw.randrange(1, 1000)
        self.external = draw.randrange(1, 50)
        self.origin = draw.choice([0, 10**9, 16 * 10**14])
        self.loses = draw.choice([0, 0, 0.2, 1.0])  # share of launches that are not recorded
        self.free = {}

    def time(self, value, origin=0):
        """Cut, not rounded, as the profiler does: slices that nest or follow each other still do."""
        ns = round(value * 1000)
        ns -= ns % 1000 if self.is_whole_us else 0
        ns += 1000 * origin
        text = f"{ns // 1000}" if ns % 1000 == 0 else f"{ns // 1000}.{ns % 1000:03d}"
        return text if self.is_text else Number(text)

    def between(self, low, high):
        """A time in us, of whole ns."""
        return math.floor(1000 * self.draw.uniform(low, high)) / 1000

    def add(self, category, name, tid, begin, took, pid=1, **args):
        args = {key.replace("_", " "): value for key, value in args.items()}
        one = {"ph": "X", "cat": category, "name": name, "args": args}
        one["pid"] = str(pid) if self.quotes and self.draw.random() < 0.5 else pid
        one["tid"] = str(tid) if self.quotes and self.draw.random() < 0.5 else tid
        one["ts"], one["dur"] = self.time(begin, self.origin), self.time(max(0, took))
        if self.draw.random() < 0.005:
            del one["dur"]
        self.events.append(one)

    def operator(self, tid, begin, took, depth=0):
        """An operator with operators and launches in it. Gives its end."""
        draw = self.draw
        self.external += 1
        own = self.external
        name = draw.choice(OPERATORS)
        if draw.random() < 0.1:
            name = "autograd::engine::evaluate_function: MmBackward0"
        self.add("Operator" if self.is_old else "cpu_op", name, tid, begin, took, External_id=own)
        at = begin
        while depth < 3 and draw.random() < 0.6 and at + 4 < begin + took:
            part = self.between(2, begin + took - at)
            self.operator(tid, at, part, depth + 1)
            at += part
        if draw.random() < 0.7 and not self.is_cpu:
            self.launch(tid, self.between(begin, begin + took), own)
        return begin + took

    def launch(self, tid, at, operator):
        draw = self.draw
        self.correlation += draw.randrange(1, 4)
        number = self.correlation if draw.random() > 0.02 else 0
        if draw.random() >= self.loses:
            self.add(*self.runtime, tid, at, 1, External_id=operator, correlation=number)
        ids = {"correlation": number, "operator": operator, "none": None}[self.id_kind]
        for _ in range(draw.choice([1, 1, 1, 3])):
            stream = draw.choice([7, 7, 7, 20])
            begin = max(at + self.between(1, 5), self.free.get(stream, 0))
            took = self.between(0, 2 * self.kernel_us)
            self.free[stream] = begin + took
            self.device(stream, begin, took, number, ids)

    def device(self, stream, begin, took, number, ids):
        draw = self.draw
        args = {"device": 0, "stream": stream, "correlation": number}
        if ids is not None:
            args["External_id"] = ids
        kind, name = draw.choice(
            [("kernel", "gemm"), ("kernel", "void nothing<x>"), ("gpu_memcpy", "Memcpy HtoD"), ("kernel", "nccl")]
        )
        if name == "nccl":
            name = "ncclDevKernel_AllReduce_Sum"
            if draw.random() < 0.5:
                args["Seq"] = draw.randrange(9)
        if self.is_old:
            kind = {"kernel": "Kernel", "gpu_memcpy": "Memcpy"}[kind]
        self.add(kind, name, stream, begin, took, pid=0, **args)

    def make(self):
        draw = self.draw
        self.is_cpu = draw.random() < 0.2
        self.kernel_us = draw.choice([2, 10, 60])
        at = self.between(0, 100)
        n_step = draw.choice([0, 1, 2, 3, 5])
        other = 0
        if draw.random() < 0.5:
            at = self.operator(1, at, 20)
        for step in range(max(1, n_step)):
            begin = at
            n = 4 if 0 < step < n_step - 1 else draw.choice([1, 4, 4])
            for _ in range(n):
                at = self.operator(1, at + self.between(0, 3), self.between(5, 60))
                if draw.random() < 0.3:
                    other = self.operator(2, max(other, at - 10), 9)
            if n_step:
                self.add("user_annotation", f"ProfilerStep#{step + 5}", 1, begin, at - begin)
                self.add("gpu_user_annotation", f"ProfilerStep#{step + 5}", 7, begin, at - begin, pid=0)
            if self.is_cpu:
                self.add("user_annotation", "gloo:all_reduce", 9, begin, 7)
        if draw.random() < 0.5:
            self.operator(1, at + 5, 30)
        self.add("python_function", "train.py(1): main", 1, 0, at)
        if draw.random() < 0.3:
            self.add("hpu_op", "unknown", 3, 10, 5)
        if draw.random() < 0.5:
            draw.shuffle(self.events)
        return self.whole()

    def whole(self):
        members = {"schemaVersion": 1, "baseTimeNanoseconds": 1727743122000000000}
        if self.draw.random() < 0.6:
            members["distributedInfo"] = {"rank": 0, "world_size": 8}
        self.events.insert(0, {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}})
        return {**members, "traceEvents": self.events}


def main():
    folder, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for k in range(n):
        text = json.dumps(Drawn(random.Random(1000 * seed + k)).make()).encode()
        packed = k % 3 == 0
        with open(os.path.join(folder, f"drawn{k:03d}.json" + (".gz" if packed else "")), "wb") as file:
            file.write(gzip.compress(text) if packed else text)


if __name__ == "__main__":
    main()
