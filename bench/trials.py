"""Judges rows of bench/trials.sh or torch/trials.py: each trial by the nine others of its plan.

usage: bench/trials.py ROWS [TRIALS]   480 trials; of others, the same shares hold"""
import math
import statistics
import sys
from collections import defaultdict

AT_MOST, ALL = 0.1, int(sys.argv[2]) if len(sys.argv) > 2 else 480
LEAST, MOST = math.ceil(0.9 * ALL), math.floor(0.98 * ALL)  # 432 to 470 of 480
trials = defaultdict(list)
with open(sys.argv[1]) as rows:
    for line in rows:
        model, plan, _, *numbers, answer = line.rstrip("\n").split("\t")
        # without a number: above all of the base's curve
        mean, low, high, base_loss, _, extra = (math.inf if x == "-" else float(x) for x in numbers)
        trials[model, plan].append((mean, low, high, base_loss, extra, answer))

n = n_held = n_decided = n_right = 0
widths = []
print("model      plan                       loss   width  holds   extra  decided  right")
for (model, plan), of_plan in trials.items():
    held = decided = right = 0
    for k, (mean, low, high, base_loss, extra, answer) in enumerate(of_plan):
        others = of_plan[:k] + of_plan[k + 1 :]
        held += low <= statistics.mean(other[0] for other in others) <= high
        widths.append((high - low) / base_loss)
        if answer in ("within", "beyond"):
            decided += 1
            right += (answer == "within") == (statistics.median(other[4] for other in others) <= AT_MOST)
    n, n_held = n + len(of_plan), n_held + held
    n_decided, n_right = n_decided + decided, n_right + right
    loss, extra = statistics.mean(t[0] for t in of_plan), statistics.median(t[4] for t in of_plan)
    width, of = 100 * statistics.median(widths[-len(of_plan) :]), len(of_plan)
    print(f"{model.split(':')[0]:10} {plan:21} {loss:9.5f} {width:6.2f}% {held:3}/{of} {100 * extra:6.1f}% "
          f"{decided:5}/{of} {right:3}/{decided}")
width = statistics.median(widths)
held_met = LEAST <= n_held <= MOST
decided_met = n_right >= 0.95 * n_decided and n_decided >= 0.6 * n
is_whole = n == ALL


def judged(is_met):
    return ("met" if is_met else "missed") if is_whole else f"open, after {n} of {ALL}"


print(f"{n_held} of {n} intervals hold the mean of the nine others; {LEAST} to {MOST} of {ALL} are asked for: "
      f"{judged(held_met)}")
print(f"their median width is {100 * width:.2f}% of the loss; at most 1 is asked for: "
      f"{judged(width <= 0.01)}")
print(f"{n_decided} of {n} are decided, {n_right} of these right; 60 and 95% are asked for: "
      f"{judged(decided_met)}")
sys.exit(not (is_whole and held_met and width <= 0.01 and decided_met))
