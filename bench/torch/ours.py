"""A step of tandem as a row of bench/torch.sh steps: CASE, its nanoseconds and bytes, between tabs.

usage: ours.py TANDEM CASE MODEL BATCH DEVICE PRECISION [RANKS]

The bytes are the peak of the process, what of it is the model's, and what weights, gradients and the optimizer's
state take. The model's are those beyond the peak of the same step of a model that has none to speak of,
mlp:width=1,depth=1. With ranks, those that the first one allocates, and no peak.
"""
import json
import resource
import subprocess
import sys

NOTHING = "mlp:width=1,depth=1"
STATES = {"sgd": 1, "adamw": 2}  # elements that an optimizer keeps for each weight; the zoo's sgd has momentum


def said(*command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main():
    tandem, case, model, batch, device, precision = sys.argv[1:7]
    ranks = int(sys.argv[7]) if len(sys.argv) > 7 else 1
    graph = said(tandem, "graph", "show", model, "--batch", batch, "--json")
    state_bytes = 4 * graph["parameters"] * (2 + STATES[graph["optimizer"]])
    how = ("-q", "--json", "--uniform", precision)
    if ranks > 1:
        run = said(
            *(tandem, "train", *how, "--model", model, "--batch", batch, "--steps", "12"),
            *("--cluster", f"{ranks}*{device}"),
        )
        print(case, run["step_ns"], 0, run["ranks"][0]["allocated_bytes"], state_bytes, sep="\t")
        return
    step = (f"{tandem}-bench", "step", *how, "--device", device, "--repetitions", "3")
    said(*step, "--model", NOTHING, "--batch", "1")
    nothing_bytes = peak_bytes()  # getrusage has the greatest of all children, so the small one runs first
    median_ns = said(*step, "--model", model, "--batch", batch)["cases"][0]["median_ns"]
    print(case, median_ns, peak_bytes(), peak_bytes() - nothing_bytes, state_bytes, sep="\t")


if __name__ == "__main__":
    main()
