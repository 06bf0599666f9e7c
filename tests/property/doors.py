"""Asks the four doors of the planner the same questions, and compares what they answer to the byte.

usage: doors.py BUILD FOLDER [QUESTION…]    FOLDER is for stores and plans; speaks TAP

The doors: `tandem allocate`; tests/truth/door (planner.h, on libtandem.so); tests/slurm/door (the options of a
step, on the plug-in's code); and `tandem.allocate`. An answer is the plan's file, its step and peaks, the
sensitivity with its interval, the goodput and the bound, or an exit code and a text."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "truth"))
import models  # noqa: E402  (of tests/truth)

MLP, RESNET, VIT = "mlp:depth=2,width=64", "resnet20:width=8", "vit_tiny:depth=1"
ALL = ("program", "planner.h", "slurm", "python")
NET = "10Gbit/s,5us"
PROOF_WORK = 5000000  # as Slurm's plug-in has it; no proof here takes that long
# What an answer is beside its plan's file. The program prints nine digits of a real.
SAME = ("step_ns", "target_ns", "peak_bytes", "sensitivity", "sensitivity_low", "sensitivity_high", "goodput",
        "sensitivity_bound", "lower_bound", "gap", "proof")  # fmt: skip
# of `tandem allocate`, and of a replay of its plan
REPLAYED = ("step_ns", "samples_per_s", "sensitivity", "sensitivity_low", "sensitivity_high",
            "fp32_goodput_samples_per_s", "fp32_samples_per_s")  # fmt: skip


class Question:
    """What is planned on which nodes, and what of it is wanted. nodes: (device, tasks of a node, nodes)."""

    def __init__(self, name, model, nodes, net=NET, doors=ALL, expected=0, **wanted):
        self.name, self.model, self.nodes, self.net = name, model, nodes, net
        self.doors, self.expected, self.wanted = doors, expected, wanted

    @property
    def cluster(self):
        ranks = " + ".join(f"{tasks * n}*{device}@{tasks}" for device, tasks, n in self.nodes)
        return ranks + (f" net={self.net}" if self.net else "")

    @property
    def is_described(self):
        return any(not device.startswith("cpu:") for device, _, _ in self.nodes)


def v100(tasks=2, n=1):
    return ("v100", tasks, n)


def t4(tasks=2, n=1):
    return ("t4", tasks, n)


def questions(weak, strong):
    """Forty for all doors, and more for those that have a word for them."""
    two, three = [v100(), t4()], [v100(), t4(), ("p4", 1, 1)]
    measured = [(strong, 1, 1), (weak, 1, 1)]
    of_cards = [
        Question("no limit", MLP, two),
        Question("a residual network", RESNET, two),
        Question("a transformer", VIT, two),
        Question("three kinds of devices", MLP, three),
        Question("three kinds of devices, convolutions", RESNET, three),
        Question("one device", MLP, [t4(1)], net=""),
        Question("one kind of device", RESNET, [t4(2, 2)]),
        Question("without f16", MLP, [("p4", 2, 1), ("gtx1080ti", 2, 1)]),
        Question("bf16 beside f16", RESNET, [("a100", 2, 1), t4()]),
        Question("fp8", MLP, [("h100", 1, 1), ("l4", 1, 1)]),
        Question("many nodes", MLP, [v100(4, 4), t4(2, 3)]),
        Question("a batch", RESNET, two, batch=64),
        Question("a batch of one", MLP, two, batch=1),
        Question("a slowdown of 0 %", MLP, two, slowdown=0),
        Question("a slowdown", RESNET, two, slowdown=5),
        Question("a slowdown of a transformer", VIT, two, slowdown=20),
        Question("a longest step", MLP, two, max_step_us=600),
        Question("a largest sensitivity of 0 %", MLP, two, max_sensitivity=0),
        Question("a largest sensitivity", RESNET, two, max_sensitivity=1),
        Question("a largest sensitivity of a transformer", VIT, two, max_sensitivity=0.5),
        Question("the least training time", RESNET, two, minimize="training-time"),
        Question("the least sensitivity", RESNET, two, minimize="sensitivity"),
        Question("the least step", RESNET, two, minimize="step"),
        Question("the least memory", MLP, two, minimize="memory"),
        Question("the least memory within limits", MLP, two, minimize="memory", slowdown=30, max_sensitivity=2),
        Question("policy greedy", RESNET, two, policy="greedy"),
        Question("policy qsync", MLP, two, policy="qsync", slowdown=10),
        Question("base precision fp16", RESNET, two, base_precision="fp16"),
        Question("memory of a rank", RESNET, two, batch=64, memory="24MiB"),
        Question("memory by class", MLP, two, memory="800KiB,1MiB"),
        Question("method fisher", MLP, two, method="fisher", slowdown=5),
        Question("method qsync", MLP, two, method="qsync"),
        Question("a global batch", MLP, two, global_batch=64),
        Question("a global batch within a slowdown", MLP, two, global_batch=64, slowdown=5),
        Question("nothing fits", RESNET, two, batch=64, memory="1MiB", expected=1),
        Question("no step so short", MLP, two, max_step_us=1, expected=1),
        Question("no such split", MLP, two, global_batch=3, expected=2),
        Question("limits that contradict each other", MLP, two, slowdown=1, max_sensitivity=1, expected=2),
        Question("a method that counts no samples", MLP, two, method="fisher", max_sensitivity=1, expected=2),
        Question("a model without an estimate", "mlp:depth=7", two, expected=4),
    ]
    of_this_machine = [
        Question("measured", MLP, measured, batch=8),
        Question("measured, within a slowdown", MLP, measured, batch=8, slowdown=10),
        Question("measured beside described", MLP, [(strong, 1, 1), t4(1)], batch=8),
        Question("a time that was not measured", RESNET, measured, batch=8, expected=4),
    ]
    not_of_slurm = ("program", "planner.h", "python")
    more = [
        Question("policy uniform", MLP, two, doors=not_of_slurm, policy="uniform", uniform="int8"),
        Question("advice", MLP, [v100()], doors=not_of_slurm, add="2*t4@2 + p4"),
        Question("advice within a slowdown", RESNET, [v100()], doors=not_of_slurm, add="2*t4@2", slowdown=5),
        Question("advice for a global batch", MLP, [v100()], doors=not_of_slurm, add="2*t4@2", global_batch=64),
        Question("advice about too many devices", MLP, [v100()], doors=not_of_slurm, add=" + ".join(["t4"] * 32),
                 expected=2),
    ]  # fmt: skip
    return of_cards + (of_this_machine if weak != strong else []) + more


# --- Doors
# ---------------------------------------------------------------------------------------------------------


def pairs(question, percent, names):
    """The options of a question, as pairs; percent(x) is the value of a limit, names renames them."""
    texts = {"batch": str, "memory": str, "base_precision": str, "policy": str, "uniform": str, "minimize": str,
             "global_batch": str, "slowdown": percent, "max_sensitivity": percent, "add": str,
             "max_step_us": lambda us: f"{us}us", "method": str}  # fmt: skip
    found = [("--model", question.model)]
    for name, value in question.wanted.items():
        option = {"max_step_us": "max-step", "method": "sensitivity", **names}.get(name, name.replace("_", "-"))
        found += [(f"--{option}", texts[name](value))]
    return [word for pair in found for word in pair]


def run(argv):
    done = subprocess.run(argv, capture_output=True, check=False, timeout=600)
    error = done.stderr.decode().splitlines()
    return done.returncode, done.stdout.decode(), error[0].split(": ", 1)[1] if done.returncode else ""


def plan_of_text(text):
    return "".join(line for line in text.splitlines(True) if not line.startswith('  "made": '))


def answer_of(said, plan):
    """In nine digits, and without what only some doors print."""
    values = {}
    for name in SAME:
        value = said.get(name)
        values[name] = f"{value:.9g}" if isinstance(value, float) else json.dumps(value)
    return {"plan": plan, **values}


def ask_program(doors, question):
    plan = os.path.join(doors.folder, "plan.json")
    verb, wanted = "advise" if "add" in question.wanted else "allocate", dict(question.wanted)
    argv = [os.path.join(doors.build, "tandem"), verb, "--db", doors.store, "-q", "--proof-work", str(PROOF_WORK)]
    argv += ["--cluster", question.cluster, "--json", *pairs(question, lambda x: f"{x}%", {})]
    argv += ["--predict"] if question.is_described else []
    argv += ["--batch", "auto"] if "global_batch" in wanted else []
    code, out, error = run(argv + ([] if verb == "advise" else ["-o", plan]))
    if code:
        return {"code": code, "error": error}
    said = json.loads(out)
    if verb == "advise":
        by_goodput = said["compared_by"] != "samples_per_s"
        rate = "fp32_goodput_samples_per_s" if by_goodput else "samples_per_s"
        return advice_of(said["best"], by_goodput, [(one[rate] or 0, one["step_ns"] or 0) for one in said["cases"]])
    if "both" in said:
        said = {**said, **said["both"]}
    said["goodput"] = said["fp32_goodput_samples_per_s"]
    check_replay(doors, question, said, plan)
    with open(plan, encoding="utf-8") as file:
        text = plan_of_text(file.read())
    return answer_of(with_plan(said, json.loads(text)), text)


def check_replay(doors, question, said, plan):
    """A replay of the plan's file says the same of it, and of its ranks in fp32."""
    argv = [os.path.join(doors.build, "tandem"), "replay", "--plan", plan, "--db", doors.store, "-q", "--json"]
    code, out, error = run(argv + (["--predict"] if question.is_described else []))
    replayed = json.loads(out) if code == 0 else {}
    for name in REPLAYED:
        if replayed.get(name) != said.get(name):
            doors.complaints.append(f"{name}: allocate says {said.get(name)}, replay {replayed.get(name)} {error}")


def with_plan(said, plan):
    """What an answer that splits a batch says in its plan alone."""
    of_plan = {name: plan[name] for name in ("step_ns", "target_ns", "sensitivity_bound", "lower_bound", "gap", "proof")}
    of_plan["peak_bytes"] = [one["peak_bytes"] for one in plan["classes"]]
    return {**said, **of_plan}


def advice_of(best, by_goodput, cases):
    return {"best": str(best), "by_goodput": str(bool(by_goodput)),
            "cases": "; ".join(f"{rate:.9g} {step}" for rate, step in cases)}  # fmt: skip


def ask_c(doors, question, argv):
    code, out, error = run(argv)
    if code:
        return {"code": code, "error": error}
    said = json.loads(out)
    if "cases" in said:
        return advice_of(said["best"], said["by_goodput"], [(one["rate"], one["step_ns"]) for one in said["cases"]])
    begin = out.index('"plan_file": ') + len('"plan_file": ')
    text = out[begin : out.rindex("}")]
    return answer_of(with_plan(said, said["plan_file"]), text)


def ask_planner(doors, question):
    door = os.path.join(doors.build, "tests", "truth", "door")
    argv = [door, "--store", doors.store, "--cluster", question.cluster, "--proof-work", str(PROOF_WORK)]
    argv += ["--predict", "1"] if question.is_described else []
    argv += pairs(question, lambda x: repr(x / 100), {"max_step_us": "max-step-ns"})
    return ask_c(doors, question, [f"{word[:-2]}000" if word.endswith("us") and word[:-2].isdigit() else word for word in argv])


def ask_slurm(doors, question):
    argv = [os.path.join(doors.build, "tests", "slurm", "door"), "--store", doors.store]
    argv += ["--net", question.net] if question.net else []
    for device, tasks, n in question.nodes:
        argv += ["--node", f"{device}:{tasks}"] * n
    return ask_c(doors, question, argv + pairs(question, lambda x: f"{x}%", {}))


def ask_python(doors, question):
    tandem = doors.package
    options = {"store": doors.store, "predict": question.is_described, "proof_work": PROOF_WORK}
    for name, value in question.wanted.items():
        if name in ("slowdown", "max_sensitivity"):
            options[name] = value / 100
        elif name == "max_step_us":
            options["target"] = value * 1e-6
        else:
            options[name] = value
    try:
        if "add" in options:
            advice = tandem.advise(question.model, question.cluster, **options)
            cases = [(one.rate, round(one.plan.step * 1e9) if one.plan else 0) for one in advice.cases]
            return advice_of(advice.cases.index(advice.best), advice.by_goodput, cases)
        plan = tandem.allocate(question.model, question.cluster, **options)
    except tandem.TandemError as refused:
        return {"code": refused.exit_code, "error": str(refused)}
    said = {name: getattr(plan, name) for name in ("sensitivity", "sensitivity_low", "sensitivity_high", "goodput")}
    return answer_of(with_plan(said, json.loads(plan.text)), plan.text)


ASK = {"program": ask_program, "planner.h": ask_planner, "slurm": ask_slurm, "python": ask_python}


class Doors:
    """Where they are, and which are here."""

    def __init__(self, build, folder):
        self.build, self.folder, self.store = build, folder, os.path.join(folder, "doors.db")
        self.package, self.why_not, self.complaints = None, {}, []
        if any(word in os.path.basename(build) for word in ("address", "thread")):
            self.why_not["python"] = "a sanitizer is not in the Python that loads the libraries"
            return
        os.environ["TANDEM_LIBRARY"] = build
        sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
        import tandem

        self.package = tandem

    def program(self, *argv):
        done = subprocess.run([os.path.join(self.build, "tandem"), *argv, "--db", self.store, "-q"], check=False,
                              capture_output=True, timeout=900)  # fmt: skip
        if done.returncode:
            sys.exit(f"Bail out! tandem {' '.join(argv)}: {done.stderr.decode()}")

    def fill_store(self, weak, strong):
        models.write_images(self.folder)
        for model in (MLP, RESNET, VIT):
            self.program("sensitivity", "--model", model, "--data", self.folder, "--batch", "4", "--steps", "8")
        self.program("sensitivity", "--model", MLP, "--data", self.folder, "--by", "statistics", "--steps", "2")
        if weak != strong:
            self.program("profile", "--model", MLP, "--batch", "8", "--device", f"{strong},{weak}")

    def devices(self):
        """The weakest and the strongest device of this CPU; a profile takes minutes with a sanitizer."""
        listed = json.loads(run([os.path.join(self.build, "tandem"), "list", "devices", "--json"])[1])["devices"]
        here = [one["name"] for one in listed if one["present"] and one["name"].startswith("cpu:")]
        return (here[0], here[-1]) if "python" not in self.why_not else (here[0], here[0])


def compare(doors, question):
    """What the doors say differently, as lines."""
    said = {door: ASK[door](doors, question) for door in question.doors if door not in doors.why_not}
    first, *others = said
    lines = []
    for door in others:
        for name in dict.fromkeys([*said[first], *said[door]]):
            a, b = said[first].get(name), said[door].get(name)
            if a == b:
                continue
            if name == "plan" and a and b:
                a, b = next(((x, y) for x, y in zip(a.splitlines(), b.splitlines()) if x != y), ("", ""))
            lines.append(f"{name}: {first} says {a}, {door} says {b}")
    lines += doors.complaints
    doors.complaints.clear()
    code = said[first].get("code", 0)
    if code != question.expected:
        lines.append(f"exit code {code}, expected {question.expected}: {said[first].get('error')}")
    return lines


def main(build, folder, *names):
    doors = Doors(os.path.abspath(build), folder)
    for door, why in doors.why_not.items():
        print(f"SKIP: the Python package, doors: {why}" if door == "python" else f"SKIP: {door}: {why}")
    weak, strong = doors.devices()
    if weak == strong:
        print("SKIP: a measured question: this CPU has one device, or a profile takes minutes with a sanitizer")
    doors.fill_store(weak, strong)
    asked = [one for one in questions(weak, strong) if not names or one.name in names]
    for number, question in enumerate(asked, 1):
        differs = compare(doors, question)
        print(f"{'not ok' if differs else 'ok'} {number} - {question.name} ({len(question.doors)} doors)")
        for line in differs[:6]:
            print(f"# {line[:400]}")
    print(f"1..{len(asked)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
