"""Costs plans: writes the file of each plan, and runs `tandem replay` of it alone. Nothing here asks the allocator."""

import itertools
import json
import math
import os
import shlex
import subprocess

ENVIRONMENT = {**{k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}, "LC_ALL": "C"}


class Failure(Exception):
    """A command ended as it may not."""


def run(argv, codes=(0,), text=""):
    """Runs a command, with a text as its standard input. Returns its exit code, standard output and error."""
    done = subprocess.run(argv, capture_output=True, input=text.encode(), env=ENVIRONMENT, timeout=600, check=False)
    if done.returncode not in codes:
        raise Failure(f"exit code {done.returncode} of {' '.join(argv)}: {done.stderr.decode()[-400:]}")
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Tandem:
    """The program, and the tables that it prints of itself."""

    def __init__(self, build):
        self.program = os.path.join(build, "tandem")
        self.door = os.path.join(build, "tests", "truth", "door")
        self.takes_clip = "--clip" in run([self.program, "allocate", "--help"])[1]
        self.devices = {d["name"]: d for d in self.list("devices")}
        self.precisions = {p["name"]: p for p in self.list("precisions")}

    def list(self, what):
        return json.loads(run([self.program, "list", what, "--json"])[1])[what]

    def of_device(self):
        return {name: list(d["precisions"]) for name, d in self.devices.items()}

    def reads_f16(self, device, precision):
        """Whether a backward product in this precision reads a gradient in f16 on the device."""
        row = self.precisions[precision]
        types = {row["dgrad"], row["wgrad"]}
        return "f16" in types or ("amp" in types and self.devices[device]["amp_dtype"] == "f16")


class Cost:
    """What `tandem replay` says of one plan."""

    __slots__ = ("step", "peaks", "more_samples", "printed_sum", "sum", "scale", "choice", "is_replayed")

    def __init__(self, other=None):
        for name in self.__slots__ if other else ():
            setattr(self, name, getattr(other, name))

    def training_time(self):
        """The step times the samples that the plan needs, in fp32's."""
        return self.step * (1 + self.sum / 100)


class Costs:
    """All plans of a problem at given batches, each costed once."""

    def __init__(self, tandem, problem, store, folder, batches, found, n_sample=12):
        self.tandem, self.problem, self.store, self.batches = tandem, problem, store, batches
        self.found, self.n_sample = found, n_sample
        self.path = os.path.join(folder, f"plan-{problem.number}.json")
        graph = json.loads(run([tandem.program, "graph", "show", problem.model, "--json"])[1])
        self.ops = [(o["name"], o["precisions"]) for o in graph["operators"] if o.get("precisions")]
        self.n_all_ops = len(graph["operators"])
        _, out, _ = run([tandem.door, "--describe", "1", "--store", store, "--model", problem.model, "--predict", "1",
                         "--cluster", "p100", "--batch", str(batches[0])])
        self.graph = json.loads(out)
        self.sets = []
        for one in problem.classes:
            has = tandem.devices[one["device"]]["precisions"]
            self.sets.append([[p for p in has if p in allowed] for _, allowed in self.ops])
        self.known = {}
        self.units, self.base_value, self.slack = None, 0, 0

    def count(self):
        return math.prod(len(s) for sets in self.sets for s in sets)

    def all(self):
        """Every plan: one precision of every operator on every class."""
        axes = [s for sets in self.sets for s in sets]
        n = len(self.ops)
        for flat in itertools.product(*axes):
            yield tuple(flat[k : k + n] for k in range(0, len(flat), n))

    def base(self, precision=None):
        return self.uniform([precision or self.problem.base] * len(self.problem.classes))

    def uniform(self, words):
        """One precision for each class, where the operator has it; else what the device substitutes for it."""
        choice = []
        for c, word in enumerate(words):
            amp = {"f16": "fp16", "bf16": "bf16"}.get(
                self.tandem.devices[self.problem.classes[c]["device"]]["amp_dtype"], "fp32")
            line = {"int8_full": ["int8", amp, "fp32"], "int8": [amp, "fp32"], "fp8": [amp, "fp32"]}.get(word, ["fp32"])
            choice.append(tuple(next(p for p in [word] + line if p in s) for s in self.sets[c]))
        return tuple(choice)

    def needs_scale(self, choice):
        return any(self.tandem.reads_f16(self.problem.classes[c]["device"], p)
                   for c, plan in enumerate(choice) for p in plan)

    def scale_of(self, choice):
        """The loss scale that this plan has, in its own right or because it was asked for; None: none."""
        if self.needs_scale(choice):
            return self.problem.loss_scale or "dynamic"
        return self.problem.loss_scale

    def plan_file(self, choice):
        p = self.problem
        plan = {"schema": "tandem.plan/1", "name": "judged", "model": self.graph["model"],
                "graph_hash": self.graph["graph_hash"], "base_precision": p.base, "classes": []}
        if p.method:
            plan["method"] = p.method
        if p.accumulate:
            plan["micro_steps"] = p.accumulate
        if p.recompute:
            plan["recompute"] = p.recompute
        if p.wire:
            plan["wire"] = p.wire
        scale = self.scale_of(choice)
        if scale:
            plan["loss_scale"] = scale
        if p.node:
            plan["node"] = p.node
        if p.net:
            plan["net"] = p.net
        for c, one in enumerate(p.classes):
            row = {"device": one["device"], "ranks": one["ranks"], "per_node": one["per_node"],
                   "batch": self.batches[c],
                   "precision": {op: precision for (op, _), precision in zip(self.ops, choice[c])}}
            if one["slow"]:
                row["slow"] = one["slow"]
            plan["classes"].append(row)
        return plan

    def replay_options(self):
        p, options = self.problem, ["--db", self.store]
        if p.predict:
            options.append("--predict")
        if p.bucket:
            options += ["--bucket", f"{p.bucket}B"]
        if p.collective:
            options += ["--collective", p.collective]
        if p.kernels:
            options += ["--kernels", p.kernels]
        if p.without_update:
            options.append("--without-update")
        if p.clip:
            options += ["--clip", p.clip]
        return options

    def cost_command(self, norm):
        p = self.problem
        cluster = p.cluster_with([f" batch={b}" for b in self.batches])
        argv = [self.tandem.door, "--cost", "1", "--store", self.store, "--model", p.model, "--cluster", cluster]
        for name, value in [("--predict", "1" if p.predict else None), ("--norm", "1" if norm or p.clip else None),
                            ("--bucket", p.bucket), ("--collective", p.collective), ("--kernels", p.kernels),
                            ("--accumulate", p.accumulate), ("--recompute", p.recompute), ("--wire", p.wire),
                            ("--without-update", "1" if p.without_update else None)]:
            if value:
                argv += [name, str(value)]
        return argv

    def replay_command(self, path):
        return [self.tandem.program, "replay", "--plan", path, "--json", "-q"] + self.replay_options()

    def cost_file(self, path):
        """The cost of a plan that lies in a file."""
        said = json.loads(run(self.replay_command(path))[1])
        cost = Cost()
        cost.step = said["step_ns"]
        cost.peaks = tuple(d["peak_bytes"] for d in said["devices"])
        cost.more_samples = said["sensitivity"]
        cost.printed_sum = said.get("sensitivity_bound")
        cost.scale = None
        return cost

    def of(self, choice):
        """The cost of a plan by `tandem replay` of its file. A cost that was known already is held against it."""
        known = self.known.get(choice)
        if known and known.is_replayed:
            return known
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.plan_file(choice), file)
        cost = self.cost_file(self.path)
        cost.choice, cost.scale, cost.is_replayed = choice, self.scale_of(choice), True
        own_sum = self.sum_of(choice)
        cost.sum = cost.printed_sum if cost.printed_sum is not None else own_sum
        if abs(cost.sum - own_sum) > self.slack + 3e-8 * own_sum:
            self.found.add_once("c", "the sum of operators", f" of {choice}: replay prints {cost.sum}, its operators have {own_sum:.9g}")
        if known and (known.step, known.peaks) != (cost.step, cost.peaks):
            self.found.add_once("h", "the replay", f" of {choice} gives {cost.step} ns, {cost.peaks} B; through planner.h "
                                f"{known.step} ns, {known.peaks} B; {shlex.join(self.replay_command(self.path))}")
        if known:
            known.__init__(cost)
            return known
        self.known[choice] = cost
        return cost

    def of_all(self, draw):
        """All plans' costs: by tandem_planner_replay, which replays thousands a second. Those that judge anything,
        and some that are drawn, are replayed by the program, too, and must be equal."""
        every = list(self.all())
        for norm in (False, True):
            these = [choice for choice in every if bool(self.scale_of(choice)) == norm and choice not in self.known]
            if not these:
                continue
            text = "".join(" ".join(p for plan in choice for p in plan) + "\n" for choice in these)
            lines = run(self.cost_command(norm), text=text)[1].splitlines()
            for choice, line in zip(these, lines, strict=True):
                cost = Cost()
                cost.choice, cost.scale, cost.is_replayed = choice, self.scale_of(choice), False
                cost.step, *peaks = map(int, line.split())
                cost.peaks, cost.sum = tuple(peaks), self.sum_of(choice)
                cost.more_samples = cost.printed_sum = None
                self.known[choice] = cost
        for choice in draw.sample(every, min(self.n_sample, len(every))):
            self.of(choice)
        return list(self.known.values())

    # --- The sum over operators, which docs/allocation.md defines -------------------------------------------------

    def parts(self):
        """A millionth of a percent has so many parts: one is added for every operator that is lowered."""
        parts = 1
        while parts <= len(self.problem.classes) * self.n_all_ops:
            parts *= 2
        return parts

    def sum_of(self, choice):
        """Each operator's own sensitivity, from the replay of a plan that lowers it alone."""
        if self.units is None:
            self.base_value = self.replay_value(self.base("fp32"))
            self.slack = 2e-6 * len(self.problem.classes) * self.n_all_ops if self.problem.wire else 0
            self.units = {(c, i, precision): self.unit_of(c, i, precision) for c, sets in enumerate(self.sets)
                          for i, precisions in enumerate(sets) for precision in precisions}
        total = sum(self.units[c, i, p] for c, plan in enumerate(choice) for i, p in enumerate(plan))
        if self.problem.method:
            return self.base_value + total
        lowered = sum(p != "fp32" for plan in choice for p in plan)
        return self.base_value + (total + lowered / self.parts()) * 1e-6

    def unit_of(self, c, i, precision):
        """In percent, whole millionths: rounded up. With a wire in bf16 the gradient of every operator adds a part; how
        each of them was rounded, no replay says. Other methods have no unit, and only `tandem replay` prints them."""
        plans = [list(one) for one in self.base("fp32")]
        plans[c][i] = precision
        more = self.replay_value(tuple(tuple(one) for one in plans)) - self.base_value if precision != "fp32" else 0
        if self.problem.method:
            return more
        more = max(more, 0) / 1e-6
        if self.problem.wire:
            return more
        least, most = math.ceil(more * (1 - 6e-10)), math.ceil(more * (1 + 6e-10))  # it was printed with nine digits
        self.slack += (most - least) * 1e-6
        return least

    def replay_value(self, choice):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.plan_file(choice), file)
        cost = self.cost_file(self.path)
        return cost.printed_sum if self.problem.method else cost.more_samples
