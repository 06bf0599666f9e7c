"""The table of bench/recipes.sh: each arm's loss above that of fp32, and what each part of the recipe does."""
import math
import pathlib
import sqlite3
import statistics
import sys

# Student's t, 97.5 %, by degrees of freedom
T = {2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 9: 2.262, 11: 2.201, 15: 2.131}
PARTS = [
    ("stochastic rounding of gradients", "without_sr", "recipe"),
    ("Hadamard transform of wgrad", "without_hadamard", "recipe"),
    ("blocks of 16 x 16 for weights", "without_2d", "recipe"),
    ("last 15 % of the layers in bf16", "without_kept", "recipe"),
    ("all of them", "nearest", "recipe"),
]
ARMS = ["nearest", "without_kept", "without_sr", "without_hadamard", "without_2d", "recipe", "bf16"]


def tail_losses(path):
    """Of each branch, in the order in which they ran: the mean loss of its last quarter."""
    store = sqlite3.connect(path)
    found = []
    for branch, steps in store.execute("SELECT id, steps FROM branch ORDER BY id").fetchall():
        losses = [row[0] for row in store.execute(
            "SELECT loss FROM branch_loss WHERE branch = ? AND step >= ? ORDER BY step",
            (branch, steps - steps // 4))]
        found.append(math.inf if None in losses else statistics.mean(losses))
    return found


def interval(values):
    mean = statistics.mean(values)
    half = T[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return mean, half


folder = pathlib.Path(sys.argv[1])
above, base = {}, None
for arm in ARMS:
    losses = tail_losses(folder / f"{arm}.db")
    of_base, of_arm = losses[0::2], losses[1::2]
    if base is None:
        base = of_base
    if sorted(base) != sorted(of_base):
        # branches of a pair run beside each other, so either may be stored first
        of_base, of_arm = [], []
        for a, b in zip(losses[0::2], losses[1::2]):
            first = a if a in base else b
            of_base.append(first)
            of_arm.append(b if first == a else a)
    if sorted(base) != sorted(of_base):
        sys.exit(f"{arm}: its branches of fp32 are not those of {ARMS[0]}")
    order = {loss: k for k, loss in enumerate(of_base)}
    above[arm] = [of_arm[order[loss]] - loss for loss in base]

print(f"fp32's loss {statistics.mean(base):.4f} nats\n")
print("arm                 loss above fp32's, nats   95 %")
for arm in ARMS:
    mean, half = interval(above[arm])
    print(f"{arm:18}  {mean:23.5f}   {mean - half:+.5f} to {mean + half:+.5f}")
print("\npart                                lowers the loss by    95 %")
seen = 0
for part, without, with_it in PARTS:
    mean, half = interval([a - b for a, b in zip(above[without], above[with_it])])
    decided = abs(mean) > half
    seen += decided
    print(f"{part:34}  {mean:18.5f}    {mean - half:+.5f} to {mean + half:+.5f}"
          f"{'' if decided else '   cannot be seen at this size'}")
sys.exit(seen == 0)
