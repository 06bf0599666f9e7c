#!/usr/bin/env python3
"""Operators of whole models as NeuSight published them, beside what tandem predicts of them.

usage: bench/model_operators.py model_operators.csv [DEVICE (V100-PCIe-32GB)]

Two predictions of each run's sum: from the rows' own shapes (`tandem predict --list`), and from the zoo's
model (`tandem replay --kernels pytorch --without-update`). Both get what the host's events add to a timing
(EVENTS and EVENTS_PRODUCT of predictor/constants.def), since the rows hold it, too. The zoo's BERT predicts
hidden tokens only: in training, heads and losses are left out of both sides of that comparison.
The table is made of NeuSight's (docs/predicting.md): one layer of a model with its repeats, each operator's
forward and backward pass, and the time in which its parameters' gradients are added to those before. Columns:
device, model, mode, batch, sequence, name, operator, repeats, input_shapes, output_shape, forward_us,
backward_us, accumulate_us.
"""
import ast
import csv
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TANDEM = os.path.join(os.environ.get("TANDEM_BUILD", os.path.join(ROOT, "build")), "tandem")
DEVICES = {"V100-PCIe-32GB": "v100_pcie", "P100-PCIe-16GB": "p100_pcie", "P4": "p4"}
ZOO = {
    "bert_large": "bert_base:width=1024,layers=24,heads=16,seq={s},head={h}",
    "gpt2_large": "gpt2_small:width=1280,layers=36,heads=20,seq={s}",
}
HEADS = ("cls_predictions", "cls_seq", "classifier", "bert_pooler", "hidden", "transform", "head", "loss",
         "pooler", "first")


def product_of(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result


def events_us(kernels):
    """What a host's events add around one call of these kernels: more where a library multiplies."""
    is_product = any(kernel["operator"] in ("linear", "matmul") for kernel in kernels)
    key = "EVENTS_PRODUCT" if is_product else "EVENTS"
    with open(os.path.join(ROOT, "predictor", "constants.def")) as source:
        return float(re.search(rf"FITTED\({key}, ([0-9.]+)", source.read()).group(1))


def stream(operator, elements, columns=1):
    """A row of a timing table: one kernel over a tensor."""
    return {"operator": operator, "rows": elements // columns, "columns": columns, "pass": "forward"}


def passes(elements, *accesses):
    """Kernels that read and write each element so often."""
    return [stream({1: "copy", 2: "copy", 3: "add"}[n], elements if n > 1 else (elements + 1) // 2)
            for n in accesses]


def linear(row, inputs, output):
    k, n = inputs[0][-1], output[-1]
    if len(inputs) == 3:
        k = inputs[1][-1]
    m = product_of(output[:-1])
    sizes = {"operator": "linear", "m": m, "k": k, "n": n}
    kernels = {name: [dict(sizes, **{"pass": name})] for name in ("forward", "dgrad", "wgrad")}
    return (kernels["forward"], kernels["dgrad"] + kernels["wgrad"] + passes(m * n, 1),
            passes(k * n, 3) + passes(n, 3))


def matmul(row, inputs, output):
    m, k, n = inputs[0][-2], inputs[0][-1], output[-1]
    sizes = {"operator": "matmul", "batch": product_of(output[:-2]), "m": m, "k": k, "n": n}
    kernels = {name: [dict(sizes, **{"pass": name})] for name in ("forward", "dgrad", "wgrad")}
    return kernels["forward"], kernels["dgrad"] + kernels["wgrad"], []


def embedding(row, inputs, output):
    width = output[-1]
    n, table = product_of(output), width * (30522 if row["model"].startswith("bert") else 50257)
    return passes(n, 2), passes(table, 1) + passes(n, 2), passes(table, 3)


# Accesses of the kernels of forward and backward; include/tandem/advanced/pytorch_kernels.def
ELEMENTWISE = {
    "VECadd": ((3,), ()), "VECaddu": ((2,), ()), "VECmulu": ((2,), (2,)), "VECdivu": ((2,), (2,)),
    "VECdiv": ((2,), (2,)), "VECmul": ((3,), (3, 3)), "VECpowu": ((2,), (2, 2, 3)), "VECtanh": ((2,), (3,)),
    "VECgelu": ((2,), (3,)), "VECrelu": ((2,), (3,)), "where": ((2,), (2,)), "getitem": ((), ()),
}


def kernels_of(row):
    """Kernels of the forward pass, the backward pass, and the sum of gradients."""
    kind, output = row["operator"], ast.literal_eval(row["output_shape"])
    inputs = json.loads(row["input_shapes"])
    n, columns = product_of(output), output[-1]
    if kind == "Linear":
        return linear(row, inputs, output)
    if kind == "BMM":
        return matmul(row, inputs, output)
    if kind == "EMBEDDING":
        return embedding(row, inputs, output)
    if kind == "VECsoftmax":
        return [stream("softmax", n, columns)], passes(n, 3, 3), []
    if kind == "VECln":
        return [stream("layernorm", n, columns)], passes(n, 3, 2), passes(columns, 3, 3)
    forward, backward = ELEMENTWISE[kind]
    if kind == "VECadd" and product_of(inputs[1]) < n:
        forward = (2,)  # the smaller summand is read again from the cache
    return passes(n, *forward), passes(n, *backward), []


def predict(device, lists):
    """Microseconds of each list of kernels."""
    columns = ["operator", "pass", "batch", "m", "k", "n", "rows", "columns"]
    with tempfile.TemporaryDirectory() as folder:
        table, times = os.path.join(folder, "operators.csv"), os.path.join(folder, "times.csv")
        with open(table, "w", newline="") as sink:
            writer = csv.DictWriter(sink, ["device", "precision"] + columns, restval="")
            writer.writeheader()
            for kernels in lists:
                for kernel in kernels:
                    writer.writerow(dict(kernel, device=device, precision="fp32"))
        subprocess.run([TANDEM, "predict", "--list", table, "-o", times], check=True,
                       stdout=subprocess.DEVNULL)
        with open(times) as source:
            each = iter([float(row["predicted_us"]) for row in csv.DictReader(source)])
    return [sum(next(each) for _ in kernels) for kernels in lists]


def zoo_us(device, run, without_head):
    model, mode, batch, sequence = run
    name = ZOO[model].format(s=sequence, h="class" if mode == "inf" else "mlm")
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        subprocess.run([TANDEM, "replay", "--predict", "--model", name, "--cluster", device + "@1", "--batch",
                        batch, "--kernels", "pytorch", "--without-update", "--trace", trace, "--db",
                        os.path.join(folder, "none.db"), "--memory", "1TiB"], check=True, stdout=subprocess.DEVNULL)
        with open(trace) as source:
            events = json.load(source)["traceEvents"]
    total = 0
    for event in events:
        if event.get("ph") != "X" or event["name"] in ("tokens", "label") or event["name"].startswith("loss"):
            continue
        if mode == "inf" and event["cat"] != "forward" or without_head and event["name"].startswith(HEADS):
            continue
        total += event["dur"]
    return total


def main():
    path, wanted = sys.argv[1], (sys.argv[2:] or ["V100-PCIe-32GB"])[0]
    with open(path) as source:
        rows = [row for row in csv.DictReader(source) if row["device"] == wanted]
    runs = list(dict.fromkeys((row["model"], row["mode"], row["batch"], row["sequence"]) for row in rows))
    if not runs:
        sys.exit(f"{path} has no rows of {wanted}")
    print(f"{'model':<11} {'mode':<5} {'batch':>5} {'measured':>9}  {'rows':>9} {'error':>7}"
          f"  {'measured':>9} {'zoo':>9} {'error':>7}")
    errors = ([], [])
    for run in runs:
        own = [row for row in rows if (row["model"], row["mode"], row["batch"], row["sequence"]) == run]
        lists, weights = [], []
        for row in own:
            for kernels, column in zip(kernels_of(row), ("forward_us", "backward_us", "accumulate_us")):
                lists.append(kernels)
                weights.append((float(row["repeats"]), float(row[column] or 0), row["name"]))
        predicted = predict(DEVICES[wanted], lists)
        has_other_head = run[0] == "bert_large" and run[1] != "inf"
        sums = {False: [0, 0, 0], True: [0, 0, 0]}  # measured, predicted, events; of all, and without heads
        for (repeats, measured, name), kernels, us in zip(weights, lists, predicted):
            added = repeats * events_us(kernels) if kernels and measured > 0 else 0
            for without_head, total in sums.items():
                if measured > 0 and not (without_head and name.startswith(HEADS)):
                    total[0] += repeats * measured
                    total[1] += repeats * us + added
                    total[2] += added
        by_zoo = zoo_us(DEVICES[wanted], run, has_other_head) + sums[has_other_head][2]
        pair = (sums[False][1] / sums[False][0] - 1, by_zoo / sums[has_other_head][0] - 1)
        for all_errors, error in zip(errors, pair):
            all_errors.append(abs(error))
        print(f"{run[0]:<11} {run[1]:<5} {run[2]:>5} {sums[False][0] / 1e3:>6.1f} ms  "
              f"{sums[False][1] / 1e3:>6.1f} ms {100 * pair[0]:>+6.1f}%  {sums[has_other_head][0] / 1e3:>6.1f} ms "
              f"{by_zoo / 1e3:>6.1f} ms {100 * pair[1]:>+6.1f}%")
    for name, all_errors in zip(("rows", "zoo"), errors):
        print(f"{name}: {100 * sum(all_errors) / len(all_errors):.1f}% on average, "
              f"{100 * max(all_errors):.1f}% at worst")


if __name__ == "__main__":
    main()
