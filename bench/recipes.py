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
of_arm = {arm: tail_losses(folder / f"{arm}.db") for arm in ARMS}
# what all arms have is of fp32: branches of a pair run beside each other, and either may be stored first
in_all = set.intersection(*(set(losses) for losses in of_arm.values()))
base = sorted(in_all)
above = {}
for arm, losses in of_arm.items():
    pairs = [(a, b) if a in in_all else (b, a) for a, b in zip(losses[0::2], losses[1::2])]
    if sorted(of_base for of_base, _ in pairs) != base:
        sys.exit(f"{arm}: its branches of fp32 are not those of the other arms")
    above[arm] = [rounded - of_base for of_base, rounded in sorted(pairs)]

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
