"""ONNX's own node cases: those that import must meet their expected output; the others must be refused, and none may crash. Prints
the counts. usage: nodes.py TRAIN_STEPS DEVICE FOLDER CASES"""
import collections
import glob
import os
import subprocess
import sys

import numpy
import onnx
from onnx import numpy_helper

train_steps, device, folder, cases = sys.argv[1:]
MOST = 1e-3  # relative and absolute, as ONNX's runner has it: rtol 1e-3, atol 1e-7; here both 1e-3 of the largest
# What a training graph does otherwise on purpose: precisions are the plan's, and what is dropped is drawn by another generator.
OTHERWISE = ("test_cast", "test_quantizelinear", "test_training_dropout")


def read(path):
    with open(path, "rb") as file:
        return numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))


def is_training(node):
    return any(a.name == "training_mode" and a.i for a in node.attribute)


def run(case, all_samples):
    """Inputs that are floats become samples, or only the first; the others are initializers."""
    model = onnx.load(f"{case}/model.onnx")
    values = [read(f"{case}/test_data_set_0/input_{i}.pb") for i in range(len(glob.glob(f"{case}/test_data_set_0/input_*.pb")))]
    graph, samples, n_samples = model.graph, [], 0
    has = {t.name for t in graph.initializer}
    given = [i for i in graph.input if i.name not in has]
    for info, value in zip(given, values):
        if value.dtype == numpy.float32 and (all_samples or not samples):
            samples.append(value.reshape(-1))
        else:
            graph.initializer.append(numpy_helper.from_array(value, info.name))
    numpy.concatenate(samples + [numpy.zeros(0, numpy.float32)]).tofile(f"{folder}/x")
    onnx.save(model, f"{folder}/case.onnx")
    wanted = read(f"{case}/test_data_set_0/output_0.pb")
    # In training mode a batchnorm uses the batch's statistics, in evaluation mode those of the file.
    steps = "0" if any(n.op_type == "BatchNormalization" and not is_training(n) for n in graph.node) else "1"
    ran = subprocess.run(
        [train_steps, f"{folder}/case.onnx", "1", device, f"{folder}/x", "-", steps, f"{folder}/y", "0", "whole"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ran.returncode:
        return ("crashed" if ran.returncode < 0 or ran.returncode == 70 else "refused"), ran.stderr.strip()
    got = numpy.fromfile(f"{folder}/y", numpy.float32)
    wanted = wanted.astype(numpy.float32).reshape(-1)
    fine = got.size == wanted.size and numpy.allclose(got, wanted, rtol=MOST, atol=1e-5, equal_nan=True)
    return ("met" if fine else "missed"), f"{got[:4]} for {wanted[:4]}"


def main():
    counts = collections.Counter()
    for case in sorted(glob.glob(f"{cases}/node/*") + glob.glob(f"{cases}/pytorch-*/*")):
        try:
            result, why = run(case, True)
            if result == "refused":
                result, why = run(case, False)
        except (TypeError, FileNotFoundError, ValueError) as error:  # sequences, texts, nothing to read
            result, why = "refused", str(error)
        if result == "missed" and os.path.basename(case).startswith(OTHERWISE):
            result = "otherwise on purpose"
        counts[result] += 1
        if result in ("missed", "crashed"):
            print(f"# {result} {os.path.basename(case)}: {why}", flush=True)
    print("ONNX's cases:", ", ".join(f"{counts[k]} {k}" for k in ("met", "otherwise on purpose", "refused", "missed", "crashed")))
    sys.exit(bool(counts["missed"] + counts["crashed"]))


main()
