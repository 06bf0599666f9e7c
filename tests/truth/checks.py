"""What every answer has to satisfy, whatever the allocator does inside."""

import copy
import json
import math
import os
import re
import shlex
import sys

from costs import Costs, run

# The sums of the judge and of the program agree to this part; results are printed with nine digits.
CLOSE = 1e-8

KINDS = {
    "a": "a plan lies below a bound",
    "b": "a plan that was offered, or doing nothing, is better than the chosen one",
    "c": "a printed value differs from the replay of that plan alone",
    "d": "a limit is exceeded",
    "e": "a value that is no value is printed",
    "f": "the fastest plan found is not the fastest one: --slowdown counts from another",
    "g": "infeasible is said, and a plan fits",
    "h": "two doors differ",
    "i": "a command failed, or ended with an exit code of its own",
    "v": "--verify refuses a plan that was just made",
    "o": "the answer is further from the best one than is said",
}


class Findings:
    def __init__(self, problem):
        self.problem = problem
        self.rows, self.notes = [], {}
        self.command = ""

    def add(self, kind, text):
        self.rows.append((kind, text, self.command))

    def add_once(self, kind, name, text):
        """For what may be wrong of every plan: the first one is reported."""
        if not any(row[1].startswith(name) for row in self.rows):
            self.add(kind, name + text)

    def summary(self):
        p = self.problem
        return {"findings": self.rows, "classes": len(p.classes), "question": p.question, "policy": p.policy,
                "notes": self.notes, "command": self.command}


def is_close(a, b, part=CLOSE, slack=0.0):
    return a is not None and b is not None and abs(a - b) <= part * max(abs(a), abs(b)) + slack + 1e-12


def is_below(judged, cost, value):
    """Whether a plan's sum is below a value that was printed."""
    slack = judged.slack if cost.printed_sum is None else 0
    return cost.sum < value - CLOSE * value - slack - 1e-12


# --- Commands -----------------------------------------------------------------------------------------------------


def request_arguments(problem, store):
    """What the command line and the other door have in common, as pairs."""
    p = problem
    pairs = [("--model", p.model), ("--cluster", p.cluster())]
    if p.question != "batch":
        pairs.append(("--batch", str(p.batch)))
    if p.base != "fp32":
        pairs.append(("--base-precision", p.base))
    if p.policy != "exact":
        pairs.append(("--policy", p.policy))
    if p.uniform:
        pairs.append(("--uniform", p.uniform))
    if p.method:
        pairs.append(("--sensitivity", p.method))
    for name in ("wire", "recompute", "collective", "kernels"):
        if getattr(p, name):
            pairs.append(("--" + name, getattr(p, name)))
    if p.accumulate:
        pairs.append(("--accumulate", str(p.accumulate)))
    if p.memory:
        pairs.append(("--memory", ",".join(f"{m}B" for m in p.memory)))
    return pairs


def allocate_command(tandem, problem, store):
    p, argv = problem, [tandem.program, "allocate"]
    for pair in request_arguments(problem, store):
        argv += pair
    argv += ["--db", store]
    if p.predict:
        argv.append("--predict")
    if p.bucket:
        argv += ["--bucket", f"{p.bucket}B"]
    if p.loss_scale:
        argv += ["--loss-scale", p.loss_scale]
    if p.clip:
        argv += ["--clip", p.clip]
    if p.slowdown is not None:
        argv += ["--slowdown", f"{p.slowdown}%"]
    if p.max_step:
        argv += ["--max-step", f"{p.max_step}ns"]
    if p.max_sensitivity is not None:
        argv += ["--max-sensitivity", f"{p.max_sensitivity:.9g}%"]
    if p.without_update:
        argv.append("--without-update")
    if p.minimize:
        argv += ["--minimize", p.minimize]
    if p.question == "pareto":
        argv += [f"--pareto={p.points}"]
    if p.question == "batch":
        argv += ["--batch", "auto", "--global-batch", str(p.global_batch)]
    return argv


def door_command(tandem, problem, store):
    p, argv = problem, [tandem.door, "--store", store]
    for pair in request_arguments(problem, store):
        argv += pair
    if p.predict:
        argv += ["--predict", "1"]
    if p.bucket:
        argv += ["--bucket", str(p.bucket)]
    if p.loss_scale:
        argv += ["--loss-scale", p.loss_scale]
    if p.clip:
        argv += ["--norm", "1"]
    if p.without_update:
        argv += ["--without-update", "1"]
    if p.slowdown is not None:
        argv += ["--slowdown", repr(p.slowdown / 100)]
    if p.max_step:
        argv += ["--max-step-ns", str(p.max_step)]
    if p.max_sensitivity is not None:
        argv += ["--max-sensitivity", repr(float(f"{p.max_sensitivity:.9g}") / 100)]
    return argv + (["--minimize", p.minimize] if p.minimize else [])


# --- Limits that follow from the plans ------------------------------------------------------------------------------


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(max(int(share * len(ordered)), 0), len(ordered) - 1)]


def set_limits(problem, every):
    """Limits between what the plans of the problem have, so that they bind."""
    p = problem
    p.memory = p.max_step = p.max_sensitivity = None
    if p.memory_share is not None:
        n = len(p.classes)
        limits = []
        for c in range(n):
            peaks = {x.peaks[c] for x in every}
            share = max(p.memory_share, 0) + 0.15 * p.draw.random()
            limits.append(quantile(peaks, share) if p.memory_share >= 0 else min(peaks) - p.draw.choice([0, 1]))
        p.memory = limits if p.memory_is_per_class and n > 1 else [max(limits)]
    fits = [x for x in every if fits_memory(p, x)] or every
    if p.step_share is not None:
        least, most = min(x.step for x in fits), max(x.step for x in fits)
        p.max_step = max(round(least + p.step_share * (most - least)), 1)
    if p.sensitivity_share is not None:
        p.max_sensitivity = float(f"{p.sensitivity_share * max(x.sum for x in fits):.4g}")


def limit_of(problem, c):
    if not problem.memory:
        return None
    return problem.memory[c] if len(problem.memory) > 1 else problem.memory[0]


def fits_memory(problem, cost):
    limits = [limit_of(problem, c) for c in range(len(problem.classes))]
    return all(limit is None or peak <= limit for limit, peak in zip(limits, cost.peaks))


# --- Text -----------------------------------------------------------------------------------------------------------


def check_text(found, text):
    """Nothing that is no number, no bound below which there is nothing, and no gap above 100 %."""
    for line in text.splitlines():
        if re.search(r"(?<![a-z])-?(nan|inf)(?![a-z])", line, re.I):
            found.add("e", f"'{line}'")
        if re.search(r"(below|lower bound) +-?0(\.0+)?(?![.0-9])", line) and "0: no sum is smaller" not in line:
            found.add("e", f"a bound that is empty, or reads so: '{line}'")
        for gap in re.findall(r"(?:gap is at most|within) ([-0-9.e+]+)%", line):
            if not 0 <= float(gap) <= 100:
                found.add("e", f"'{line}'")


def check_numbers(found, said, path=""):
    if isinstance(said, dict):
        for key, value in said.items():
            check_numbers(found, value, f"{path}.{key}")
    elif isinstance(said, list):
        for k, value in enumerate(said):
            check_numbers(found, value, f"{path}[{k}]")
    elif isinstance(said, float) and not math.isfinite(said):
        found.add("e", f"{path} is {said}")
    if path.endswith((".gap",)) and said is not None and not -CLOSE <= said <= 1 + CLOSE:
        found.add("e", f"{path} is {said}")


# --- One plan -------------------------------------------------------------------------------------------------------


class Answer:
    """What an allocation says: its JSON object, its plan's file, and the cost of that file by replay."""

    def __init__(self, said, plan, cost, choice):
        self.said, self.plan, self.cost, self.choice = said, plan, cost, choice
        self.kept = [one["keeps_base"] for one in plan["classes"]]

    def bound_set(self, judged, every):
        """The plans of a bound: the kept classes in base, and within memory."""
        base = judged.base()
        return [x for x in every if fits_memory(judged.problem, x)
                and all(not kept or x.choice[c] == base[c] for c, kept in enumerate(self.kept))]


def describe(judged, cost):
    """A plan, as `tandem replay` costs it."""
    cost, words = judged.of(cost.choice), []
    for c, plan in enumerate(cost.choice):
        words.append(f"{judged.problem.classes[c]['device']}: {','.join(plan)}")
    scale = f", loss scale {cost.scale}" if cost.scale else ""
    return f"[{'; '.join(words)}{scale}: step {cost.step} ns, sum {cost.sum:.9g}, peaks {cost.peaks}]"


def read_choice(judged, plan):
    return tuple(tuple(one["precision"][op] for op, _ in judged.ops) for one in plan["classes"])


def check_replayed(found, judged, answer, every_sum):
    """The chosen plan has the goodput that is said of it, and its file has the loss scale that its gradients need."""
    said, mine = answer.said, judged.of(answer.choice)
    if said["step_ns"] != answer.cost.step:
        found.add("c", f"the chosen plan's step: said {said['step_ns']} ns, replayed {answer.cost.step} ns")
    if mine.step != answer.cost.step:
        found.add("c", f"the chosen plan's file has another loss scale ({answer.plan.get('loss_scale')}) than its "
                       f"gradients need ({mine.scale}): step {answer.cost.step} ns for {mine.step} ns")
    elif (answer.plan.get("loss_scale") or None) != mine.scale:
        found.add("c", f"the plan's file has loss scale {answer.plan.get('loss_scale')}, its gradients need {mine.scale}")
    peaks = tuple(said["peak_bytes"]) if isinstance(said["peak_bytes"], list) else None
    if peaks is not None and peaks != answer.cost.peaks:
        found.add("c", f"the chosen plan's peaks: said {peaks}, replayed {answer.cost.peaks}")
    if every_sum and not is_close(said["sensitivity_bound"], mine.sum, 1e-7, judged.slack):
        found.add("c", f"the chosen plan's sum: said {said['sensitivity_bound']}, by replay {mine.sum:.9g}")
    if not judged.problem.method and mine.more_samples is not None and mine.more_samples > said["sensitivity_bound"] * (1 + CLOSE) + 1e-12:
        found.add("c", f"the chosen plan's sum {said['sensitivity_bound']} is less than its sensitivity "
                       f"{mine.more_samples}")


def check_limits(found, judged, answer):
    p, said, cost = judged.problem, answer.said, answer.cost
    for c in range(len(p.classes)):
        if limit_of(p, c) is not None and cost.peaks[c] > limit_of(p, c):
            found.add("d", f"peak {cost.peaks[c]} B of class {c}, the limit is {limit_of(p, c)} B")
    if p.policy == "uniform":
        return
    if p.max_step and cost.step > p.max_step:
        found.add("d", f"step {cost.step} ns, --max-step is {p.max_step} ns")
    if said["objective"] in ("sensitivity", "memory") and said["target_ns"] and cost.step > said["target_ns"]:
        found.add("d", f"step {cost.step} ns, the allowed step is {said['target_ns']} ns")
    if p.max_sensitivity is not None and said["sensitivity_bound"] > p.max_sensitivity * (1 + CLOSE) + 1e-12:
        found.add("d", f"sum {said['sensitivity_bound']} %, --max-sensitivity is {p.max_sensitivity} %")


def check_bounds(found, judged, answer, every):
    said = answer.said
    within = answer.bound_set(judged, every)
    target = said["target_ns"] or math.inf
    bound = answer.plan["lower_bound"]  # with all its digits
    if bound is not None:
        least = min((x for x in within if x.step <= target), key=lambda x: x.sum, default=None)
        if least and is_below(judged, judged.of(least.choice), bound):
            found.add("a", f"no plan within {target} ns that keeps {answer.kept} in base has a sum below {bound}, "
                           f"it is said; there is {describe(judged, least)}")
        if bound == 0 < said["sensitivity_bound"]:
            found.add("e", f"the lower bound 0, with a gap of {said['gap']}, is no bound")
        gap = (said["sensitivity_bound"] - bound) / said["sensitivity_bound"] if said["sensitivity_bound"] else 0
        if said["gap"] is None or abs(said["gap"] - gap) > 1e-6:
            found.add("a", f"gap {said['gap']} does not follow from the sum {said['sensitivity_bound']} and the bound "
                           f"{bound}: {gap:.9g}")
    training = said.get("training_bound_ns")
    if training is not None:
        check_training_bound(found, judged, answer, every, training)


def check_training_bound(found, judged, answer, every, training):
    said, base = answer.said, judged.base()
    names, devices = list(said.get("training_keeps_base") or []), [one["device"] for one in judged.problem.classes]
    if sorted(n for n in devices if n in names) != sorted(names):
        return  # of two classes of a device, the names do not say which: the other door does
    within = [x for x in every if x.step >= said["training_from_ns"] and fits_memory(judged.problem, x)
              and all(n not in names or x.choice[c] == base[c] for c, n in enumerate(devices))]
    least = min(within, key=lambda x: x.training_time(), default=None)
    if least and judged.of(least.choice).training_time() < training * (1 - CLOSE) - 1:
        found.add("a", f"no plan of {said['training_from_ns']} ns or more that keeps {names} in base has a step x (1 + "
                       f"sum) below {training} ns, it is said; there is {describe(judged, least)}, {least.training_time():.9g} ns")
    if said["training_ns"] is None or training > said["training_ns"] * (1 + CLOSE):
        found.add("a", f"the bound {training} ns exceeds the plan's own {said['training_ns']} ns")


def offered_plans(judged, answer):
    """The baselines, costed by replay, with what the output says of each."""
    said = answer.said
    lowered = [d["lowered"] for d in said["devices"]]
    pairs = []
    for row in said["baselines"]:
        words = [row["precision"] if low else judged.problem.base for low in lowered]
        if not any(lowered):
            continue  # which class is lowered, the output does not say
        if all(w in judged.tandem.devices[one["device"]]["precisions"] for w, one in zip(words, judged.problem.classes)):
            pairs.append((row, judged.of(judged.uniform(words))))
    return pairs


def check_baselines(found, judged, answer):
    for row, cost in offered_plans(judged, answer):
        if row["step_ns"] != cost.step:
            found.add("c", f"baseline '{row['name']}': step {row['step_ns']} ns is said, replayed {cost.step} ns")
        if not is_close(row["sensitivity_bound"], cost.sum, 1e-7, judged.slack):
            found.add("c", f"baseline '{row['name']}': sum {row['sensitivity_bound']} is said, by replay {cost.sum:.9g}")
        if row["fits"] != fits_memory(judged.problem, cost):
            found.add("c", f"baseline '{row['name']}': fits {row['fits']} is said, its peaks are {cost.peaks}")


def is_better(judged, answer, other):
    """Why another plan is a better answer to what was asked; None: it is not."""
    p, said, mine = judged.problem, answer.said, judged.of(answer.choice)
    mine_step, mine_sum = answer.cost.step, said["sensitivity_bound"]
    if not fits_memory(p, other):
        return None
    goal = said["objective"]
    if goal == "training-time":
        mine_training = mine_step * (1 + mine_sum / 100)
        if other.training_time() < mine_training * (1 - CLOSE):
            return f"step x (1 + sensitivity) {other.training_time():.9g} ns < {mine_training:.9g} ns"
    if goal == "step" and other.sum + judged.slack <= p.max_sensitivity and other.step < mine_step:
        return f"step {other.step} ns < {mine_step} ns, within the sensitivity"
    if goal == "sensitivity" and other.step <= said["target_ns"] and is_below(judged, other, mine_sum):
        if said["indistinguishable_ns"] is None or other.step <= mine_step:
            return f"sum {other.sum:.9g} < {mine_sum:.9g}, step {other.step} ns <= {said['target_ns']} ns"
    if goal == "memory" and other.step <= said["target_ns"] and max(other.peaks) < max(mine.peaks):
        if p.max_sensitivity is None or other.sum + judged.slack <= p.max_sensitivity:
            return f"peak {max(other.peaks)} B < {max(mine.peaks)} B, step {other.step} ns <= {said['target_ns']} ns"
    return None


def check_not_worse(found, judged, answer):
    if judged.problem.policy == "uniform":
        return
    offers = [(f"baseline '{row['name']}'", cost) for row, cost in offered_plans(judged, answer)]
    for name, cost in [("doing nothing", judged.of(judged.base()))] + offers:
        why = is_better(judged, answer, cost)
        if why:
            found.add("b", f"{name} is better: {why}")


def check_fastest(found, judged, answer, every):
    """--slowdown allows so much over the fastest step of the plans that keep the same classes in base."""
    p, said = judged.problem, answer.said
    # qsync counts from its own initial setting, as published, and its text says so
    if p.policy in ("uniform", "qsync") or said["slowdown"] is None or said["objective"] not in ("sensitivity", "memory"):
        return
    fastest = min(answer.bound_set(judged, every), key=lambda x: x.step, default=None)
    allowed = fastest and fastest.step * (1 + said["slowdown"])
    if fastest and answer.cost.step > allowed + 1:
        found.add("f", f"step {answer.cost.step} ns with --slowdown {100 * said['slowdown']:g}%: the fastest plan that "
                       f"keeps {answer.kept} in base takes {fastest.step} ns, so {allowed:.0f} ns are allowed; fastest "
                       f"found: {said['fastest_ns']} ns; it is {describe(judged, fastest)}")


def check_optimum(found, judged, answer, every):
    """docs/allocation.md: by `exact`, the step within a sensitivity and the least memory are the best to 1/4096, and
    the training time is to 1 % at most."""
    p, said = judged.problem, answer.said
    within = answer.bound_set(judged, every)
    if p.policy != "exact":
        return
    if said["objective"] == "step":
        best = min((x for x in within if x.sum + judged.slack <= p.max_sensitivity), key=lambda x: x.step, default=None)
        if best and answer.cost.step > best.step * (1 + 1 / 4096) + 2:
            found.add("o", f"step {answer.cost.step} ns within {p.max_sensitivity} %: there is {describe(judged, best)}")
    if said["objective"] == "training-time":
        best = min((x for x in within if x.step >= said["training_from_ns"]), key=lambda x: x.training_time(),
                   default=None)
        mine = answer.cost.step * (1 + said["sensitivity_bound"] / 100)
        if best and mine > best.training_time() * 1.0101 + 2:
            found.add("o", f"step x (1 + sensitivity) {mine:.9g} ns: there is {describe(judged, best)}, "
                           f"{best.training_time():.9g} ns")
    if said["objective"] == "memory":
        most = math.inf if p.max_sensitivity is None else p.max_sensitivity
        best = min((x for x in within if x.sum + judged.slack <= most and x.step <= said["target_ns"]), key=lambda x: max(x.peaks),
                   default=None)
        if best and max(answer.cost.peaks) > max(best.peaks) * (1 + 1 / 4096) + 128:
            found.add("o", f"peak {max(answer.cost.peaks)} B: there is {describe(judged, best)}")


# --- Doors ----------------------------------------------------------------------------------------------------------

SAME = ("step_ns", "target_ns", "fastest_ns", "indistinguishable_ns", "training_ns", "training_bound_ns",
        "training_from_ns", "sensitivity_bound", "fastest_sensitivity_bound", "lower_bound", "gap", "proof", "method", "policy", "peak_bytes")


def canonical(name, said):
    """A value as both doors print it: reals with nine digits; where nothing was given up, 0 or null."""
    value = said.get(name)
    if isinstance(value, (int, float)) and not (name in ("indistinguishable_ns", "training_from_ns") and value == 0):
        return f"{value:.9g}" if isinstance(value, float) or abs(value) < 1e9 else str(value)
    return "null" if value is None or value == 0 else json.dumps(value)


def check_doors(found, judged, answer, plan_text, code):
    """The same request through planner.h: the same plan, byte for byte, and the same numbers."""
    tandem, p = judged.tandem, judged.problem
    argv = door_command(tandem, p, judged.store)
    other_code, out, err = run(argv, codes=(0, 1, 2, 3, 4))
    if other_code != code:
        found.add("h", f"planner.h ends with {other_code}, the program with {code}: {err.strip()}; {shlex.join(argv)}")
        return
    if code != 0:
        return
    other = json.loads(out)
    said = dict(answer.said)
    differs = [f"{name} {canonical(name, said)} / {canonical(name, other)}" for name in SAME
               if canonical(name, said) != canonical(name, other)]
    text = "".join(line for line in plan_text.splitlines(True) if not line.startswith('  "made": '))
    begin = out.index('"plan_file": ') + len('"plan_file": ')
    other_text = out[begin : out.rindex("}")]
    if text != other_text:
        lines = [f"{a.strip()} / {b.strip()}" for a, b in zip(text.splitlines(), other_text.splitlines()) if a != b]
        differs.append(f"plan files: {'; '.join(lines[:4])}")
    if differs:
        found.add("h", f"program / planner.h: {', '.join(differs[:8])}; {shlex.join(argv)}")


# --- What is said of other plans ------------------------------------------------------------------------------------


def check_fewer(found, judged, answer):
    """Fewer devices that are said to be faster have a plan with that step and that sum."""
    fewer = answer.said["fewer_devices"]
    if not fewer or judged.problem.method:
        return
    for c in range(len(judged.problem.classes)):
        rest = copy.copy(judged.problem)
        rest.classes = rest.classes[:c] + rest.classes[c + 1 :]
        names = [one["device"] for one in rest.classes]
        if names != [d["name"] for d in fewer["devices"]]:
            continue
        others = Costs(judged.tandem, rest, judged.store, os.path.dirname(judged.path),
                        judged.batches[:c] + judged.batches[c + 1 :], found)
        if any(x.step == fewer["step_ns"] and is_close(x.sum, fewer["sensitivity_bound"], 1e-7, others.slack)
               for x in others.of_all(judged.problem.draw)):
            return
    found.add("c", f"fewer devices: no plan of {fewer['cluster']} replays to step {fewer['step_ns']} ns, sum "
                   f"{fewer['sensitivity_bound']}")


def check_explained(found, judged, answer):
    """Of each other precision of each operator: the step and the peak of the plan with it, costed by its own need."""
    argv = allocate_command(judged.tandem, judged.problem, judged.store)
    rows = json.loads(run(argv + ["--explain", "all", "--json", "-q"])[1])["explained_all"]
    mine = judged.of(answer.choice)
    for row in rows:
        i = [op for op, _ in judged.ops].index(row["operator"])
        for c, device in enumerate(row["devices"]):
            for choice in device["choices"]:
                plans = [list(one) for one in answer.choice]
                plans[c][i] = choice["precision"]
                key = tuple(tuple(one) for one in plans)
                other = judged.known[key]
                says = (choice["step_change_ns"], choice["memory_change_bytes"])
                truth = (other.step - mine.step, other.peaks[c] - mine.peaks[c])
                if says != truth:
                    other = judged.of(key)
                    found.add("c", f"--explain: {row['operator']} in {choice['precision']} on class {c} changes step and "
                                   f"peak by {says}, it is said; replayed: {truth}, {describe(judged, other)}")
                    return


# --- Questions ------------------------------------------------------------------------------------------------------


def is_feasible(judged, x):
    p = judged.problem
    return (fits_memory(p, x) and (not p.max_step or x.step <= p.max_step)
            and (p.max_sensitivity is None or x.sum + judged.slack <= p.max_sensitivity))


def check_infeasible(found, judged, said, err, every):
    p = judged.problem
    if said is None or said.get("fits") is not False:
        found.add("i", f"exit code 1 without an object that says why: {err.strip()[:200]}")
        return
    possible = [x for x in every if is_feasible(judged, x)]
    if p.max_sensitivity is not None and p.minimize == "memory" and p.max_step is None:
        return  # within the step of the fastest plan, which may need more
    if possible and p.policy == "exact":
        found.add("g", f"'{said['why']}', and there is {describe(judged, min(possible, key=lambda x: x.step))}")


def ask_plan(found, judged, folder):
    """The answer of `tandem allocate`, as JSON, text and file; None: there is no plan."""
    tandem, p = judged.tandem, judged.problem
    path = os.path.join(folder, "chosen.json")
    argv = allocate_command(tandem, p, judged.store)
    found.command = shlex.join(argv)
    code, out, err = run(argv + ["--json", "-q", "-o", path], codes=(0, 1))
    text_code, text, text_err = run(argv + ["-q"], codes=(0, 1))
    check_text(found, text + text_err + err)
    if text_code != code:
        found.add("i", f"exit code {code} with --json, {text_code} without")
    said = json.loads(out) if out else None
    check_numbers(found, said)
    if code == 1:
        return None, said, err, ""
    with open(path, encoding="utf-8") as file:
        plan_text = file.read()
    plan = json.loads(plan_text)
    verify = [tandem.program, "allocate", "--verify", path, "--db", judged.store] + judged.replay_options()[2:]
    code, out, err = run(verify, codes=(0, 1, 3))
    check_text(found, out + err)
    if code != 0:
        found.add("v", f"exit code {code}: {(out + err).strip()[-300:]}")
    return Answer(said, plan, judged.cost_file(path), read_choice(judged, plan)), said, err, plan_text


def check_plan(found, judged, folder, every):
    answer, said, err, plan_text = ask_plan(found, judged, folder)
    if answer is None:
        check_infeasible(found, judged, said, err, every)
        check_doors(found, judged, None, "", 1)
        return
    check_replayed(found, judged, answer, every_sum=True)
    check_limits(found, judged, answer)
    check_bounds(found, judged, answer, every)
    check_baselines(found, judged, answer)
    check_not_worse(found, judged, answer)
    check_fastest(found, judged, answer, every)
    check_optimum(found, judged, answer, every)
    check_doors(found, judged, answer, plan_text, 0)
    check_fewer(found, judged, answer)
    if judged.problem.explains:
        check_explained(found, judged, answer)
    found.notes["proof"] = said["proof"]
    found.notes["loss_scale"] = answer.plan.get("loss_scale")


def check_pareto(found, judged, every):
    """Each point is a plan that there is, none is worse than a plan beside it, and no plan is below its bound."""
    tandem, p = judged.tandem, judged.problem
    argv = allocate_command(tandem, p, judged.store)
    found.command = shlex.join(argv)
    code, out, err = run(argv + ["--json", "-q"], codes=(0, 1))
    check_text(found, run(argv + ["-q"], codes=(0, 1))[1])
    said = json.loads(out) if out else None
    check_numbers(found, said)
    if code == 1:
        check_infeasible(found, judged, said, err, every)
        return
    base = judged.base()
    for k, point in enumerate(said["pareto"]):
        same = [x for x in every if x.step == point["step_ns"] and max(x.peaks) == point["peak_bytes"]
                and is_close(x.sum, point["sensitivity_bound"], 1e-7, judged.slack)]
        if not same:
            found.add("c", f"point {k}: no plan replays to step {point['step_ns']} ns, sum {point['sensitivity_bound']}, "
                           f"peak {point['peak_bytes']} B")
        if same and not any(fits_memory(p, x) for x in same):
            found.add("d", f"point {k}: its peaks {same[0].peaks} exceed the limit")
        for row in said["baselines"] + said["pareto"][:k] + said["pareto"][k + 1 :]:
            if row.get("fits", True) and all(row[m] <= point[m] for m in ("step_ns", "sensitivity_bound", "peak_bytes")) \
                    and any(row[m] < point[m] for m in ("step_ns", "sensitivity_bound", "peak_bytes")):
                found.add("b", f"point {k} (step {point['step_ns']}, sum {point['sensitivity_bound']}, peak "
                               f"{point['peak_bytes']}) is worse than {row.get('name', 'another point')} "
                               f"({row['step_ns']}, {row['sensitivity_bound']}, {row['peak_bytes']})")
        if point["lower_bound"] is not None and same:
            # the bound's set has at least the plans that keep every class in base that the point's plan has there
            rooms = []
            for x in same:
                kept = [x.choice[c] == base[c] for c in range(len(base))]
                rooms.append(min((y for y in every if y.step <= point["target_ns"] and fits_memory(p, y)
                                  and all(not keep or y.choice[c] == base[c] for c, keep in enumerate(kept))),
                                 key=lambda y: y.sum, default=None))
            if all(y and is_below(judged, judged.of(y.choice), point["lower_bound"]) for y in rooms):
                found.add("a", f"point {k}: no plan within {point['target_ns']} ns has a sum below {point['lower_bound']}, "
                               f"it is said; there is {describe(judged, rooms[0])}")
    for row in said["baselines"]:
        words = [row["precision"]] * len(p.classes)
        if row["name"].startswith("all ") and all(w in tandem.devices[one["device"]]["precisions"]
                                                  for w, one in zip(words, p.classes)):
            cost = judged.of(judged.uniform(words))
            if row["step_ns"] != cost.step:
                found.add("c", f"baseline '{row['name']}': step {row['step_ns']} ns is said, replayed {cost.step} ns")


def check_batches(found, tandem, problem, store, folder):
    """A split of a batch: its plan is held against all plans at its own split, and the other rows against replays."""
    p = problem
    path = os.path.join(folder, "chosen.json")
    n_rank = sum(one["ranks"] for one in p.classes)
    even = Costs(tandem, p, store, folder, [p.global_batch // (p.accumulate or 1) // n_rank] * len(p.classes), found)
    set_limits(p, even.of_all(p.draw))
    argv = allocate_command(tandem, p, store)
    found.command = shlex.join(argv)
    code, out, err = run(argv + ["--json", "-q", "-o", path], codes=(0, 1))
    check_text(found, run(argv + ["-q"], codes=(0, 1))[1])
    if code != 0:
        if p.policy == "exact" and any(fits_memory(p, x) for x in even.known.values()):
            found.add("g", f"'{err.strip()}', and an even split has a plan that fits")
        return even
    said = json.loads(out)
    check_numbers(found, said)
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    judged = Costs(tandem, p, store, folder, said["both"]["batch"], found)
    both, cost = said["both"], judged.cost_file(path)
    if both["step_ns"] != cost.step:
        found.add("c", f"both: step {both['step_ns']} ns is said, replayed {cost.step} ns")
    mine = judged.of(read_choice(judged, plan))
    if mine.step != cost.step:
        found.add("c", f"both: its file has loss scale {plan.get('loss_scale')}, its gradients need {mine.scale}: step "
                       f"{cost.step} ns for {mine.step} ns")
    if not is_close(both["sensitivity_bound"], mine.sum, 1e-7, judged.slack):
        found.add("c", f"both: sum {both['sensitivity_bound']} is said, by replay {mine.sum:.9g}")
    alone = said["batch_alone"]
    if alone["step_ns"] is not None:
        base = Costs(tandem, p, store, folder, alone["batch"], found)
        base_cost = base.of(base.base())
        if alone["step_ns"] != base_cost.step:
            found.add("c", f"batch alone: step {alone['step_ns']} ns is said, all in base replays to {base_cost.step} ns")
    every = judged.of_all(problem.draw)
    answer = Answer({**plan, **both, "objective": "sensitivity", "target_ns": plan["target_ns"],
                     "indistinguishable_ns": None, "training_bound_ns": None, "peak_bytes": None}, plan, cost,
                    read_choice(judged, plan))
    check_bounds(found, judged, answer, every)
    if not fits_memory(p, cost):
        found.add("d", f"both: its peaks are {cost.peaks} B, the limits {p.memory} B")
    if p.slowdown is None and p.policy != "uniform":
        nothing = even.of(even.base())
        training = both["step_ns"] * (1 + both["sensitivity_bound"] / 100)
        if fits_memory(p, nothing) and nothing.training_time() < training * (1 - CLOSE):
            found.add("b", f"doing nothing is better: step x (1 + sum) {nothing.training_time():.9g} ns < {training:.9g} ns")
        for name in ("precision_alone", "batch_alone"):
            row = said[name]
            if row["step_ns"] is not None and row["step_ns"] * (1 + row["sensitivity_bound"] / 100) < training * (1 - CLOSE):
                found.add("b", f"{name} is better: step x (1 + sensitivity) "
                               f"{row['step_ns'] * (1 + row['sensitivity_bound'] / 100):.9g} ns < {training:.9g} ns")
    return judged


def check(tandem, problem, store, folder):
    found = Findings(problem)
    if problem.question == "batch":
        judged = check_batches(found, tandem, problem, store, folder)
        every = list(judged.known.values()) if judged else []
    else:
        batches = [one["batch"] or problem.batch for one in problem.classes]
        judged = Costs(tandem, problem, store, folder, batches, found)
        every = judged.of_all(problem.draw)
        set_limits(problem, every)
        if problem.question == "pareto":
            check_pareto(found, judged, every)
        else:
            check_plan(found, judged, folder, every)
    found.notes["plans"] = len(every)
    found.notes["fit"] = sum(fits_memory(problem, x) for x in every) if every else 0
    found.notes["with_f16"] = any(judged.needs_scale(x.choice) for x in every)
    return found


# --- Results --------------------------------------------------------------------------------------------------------


def print_result(one, options):
    """A line for a problem, and with --tap a line of TAP; then what was found, and how to see it again."""
    name = f"problem {one['number']}"
    mark = "# " if options.tap else "  "
    if "skipped" in one:
        print(f"SKIP: {name}: {one['skipped']}")
        if options.tap:
            print(f"ok {options.n_done} - {name} # SKIP", flush=True)
        return
    text = (f"{name}: {one['notes'].get('plans', 0)} plans, {one['classes']} classes, {one['question']} by {one['policy']}, "
            f"{len(one['findings'])} violations")
    if options.tap:
        print(f"{'not ok' if one['findings'] else 'ok'} {options.n_done} - {text}")
    else:
        print(f"{text}, {one['seconds']:.1f} s")
    for kind, said, _ in one["findings"]:
        print(f"{mark}{kind} ({KINDS[kind]}): {said}")
    if one["findings"]:
        print(f"{mark}again: make check-truth SEED={options.seed} PROBLEM={one['number']}; {one['command']}")
    sys.stdout.flush()


# What 300 problems have to be, so that they say anything: (what, at least).
QUOTAS = [("plans of each", 64), ("plans in the median", 256), ("with three classes", 50),
          ("in which memory excludes a quarter", 50), ("with gradients in f16", 50), ("without", 50)]


def count_quotas(judged):
    counts = sorted(one["notes"].get("plans", 0) for one in judged)
    with_f16 = sum(bool(one["notes"].get("with_f16")) for one in judged)
    tight = sum(one["notes"].get("fit", 0) <= 0.75 * one["notes"].get("plans", 0) for one in judged)
    return [counts[0], counts[len(counts) // 2], sum(one["classes"] == 3 for one in judged), tight, with_f16,
            len(judged) - with_f16]


def print_summary(results, options, seconds):
    judged = [one for one in results if "skipped" not in one]
    kinds = {}
    for one in judged:
        for kind, _, _ in one["findings"]:
            kinds[kind] = kinds.get(kind, 0) + 1
    if options.tap:
        print(f"1..{len(results)}")
        return 1 if kinds else 0
    failed = bool(kinds)
    print(f"{len(judged)} problems of seed {options.seed}, {sum(one['notes'].get('plans', 0) for one in judged)} plans, "
          f"{seconds:.0f} s")
    for (what, least), count in zip(QUOTAS, count_quotas(judged)):
        is_short = len(results) >= 300 and count < least
        failed |= is_short
        print(f"  {count} {what}" + (f": too few, {least} are to be" if is_short else ""))
    for kind in sorted(kinds):
        print(f"  {kinds[kind]} x {kind}: {KINDS[kind]}")
    print(f"{sum(kinds.values())} violations in {sum(bool(one['findings']) for one in judged)} problems")
    return 1 if failed else 0
