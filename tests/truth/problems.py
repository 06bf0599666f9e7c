"""Draws small allocation problems. The same seed and number give the same problem, on every machine."""

import random

# A device that is measured runs on this machine's CPU; others are predicted from their descriptions.
MEASURED = ["cpu:sse41", "cpu:avx", "cpu:avx2"]
WITHOUT_F16 = ["p4", "gtx1080ti", "titan_xp"]
WITH_F16 = ["p100", "p100_pcie", "t4", "v100", "v100_pcie", "a10", "a40", "a100", "a100_pcie", "l4", "l40s", "h100",
            "b200", "rtx5090"]

# Models, with the number of operators whose precision is chosen. A name that ends in .onnx is made by models.py.
PREDICTED_MODELS = {
    "mlp:depth=1,width=64": 2,
    "mlp:depth=1": 2,
    "mlp:depth=1,width=512": 2,
    "mlp:depth=2,width=32": 3,
    "mlp:depth=2,width=512": 3,
    "mlp:depth=3,width=128": 4,
    "branches.onnx": 3,
    "convolutions.onnx": 3,
    "resnet20:blocks=1,width=4": 10,
    "vit_tiny:depth=1,width=12,heads=3": 10,
}
MEASURED_MODELS = {"mlp:depth=1,width=64": 2, "mlp:depth=2,width=32": 3, "branches.onnx": 3}
MEASURED_BATCH = 8

NETS = ["10Gbit/s,5us", "100Gbit/s,5us", "1Gbit/s,50us", "300GB/s,1us", "25Gbit/s,20us"]
FEWEST, MOST = 64, 1300


class Problem:
    """What is asked: the model, the classes of ranks, and the options of `tandem allocate`."""

    def __init__(self, number, seed):
        self.number = number
        self.draw = random.Random(f"{seed}/{number}")
        self.model = ""
        self.n_op = 0
        self.classes = []  # dicts: device, ranks, per_node, batch, slow
        self.net = self.node = None
        self.batch = 16
        self.measured = []  # devices of this machine's CPU
        self.predict = True
        self.policy = "exact"
        self.uniform = None
        self.base = "fp32"
        self.question = "plan"  # or pareto, batch
        self.slowdown = None  # in percent
        self.minimize = None
        self.step_share = None  # of the way from the fastest plan to base: --max-step
        self.sensitivity_share = None  # of the most sensitive plan: --max-sensitivity
        self.memory_share = None  # of a class's plans: what --memory leaves
        self.memory_is_per_class = True
        self.loss_scale = None
        self.clip = None
        self.wire = None
        self.accumulate = None
        self.recompute = None
        self.bucket = None
        self.collective = None
        self.kernels = None
        self.without_update = False
        self.method = None  # of the sensitivities
        self.explains = False  # --explain all, too
        self.points = None  # of --pareto
        self.global_batch = None

    def cluster(self):
        """The classes as `--cluster` reads them."""
        return self.cluster_with([f" batch={one['batch']}" if one["batch"] and self.question != "batch" else ""
                                  for one in self.classes])

    def cluster_with(self, batches):
        words = []
        for one, batch in zip(self.classes, batches):
            text = f"{one['ranks']}*{one['device']}"
            if one["per_node"]:
                text += f"@{one['per_node']}"
            text += batch
            if one["slow"]:
                text += f" slow={one['slow']}"
            words.append(text)
        text = " + ".join(words)
        if self.node:
            text += f" node={self.node}"
        return text + (f" net={self.net}" if self.net else "")


def draw_devices(problem, n_class, measured, with_f16):
    draw = problem.draw
    if measured:
        devices = draw.sample(MEASURED, n_class)
        if with_f16:  # beside a described one
            devices[-1] = draw.choice(WITH_F16)
        return devices
    devices = [draw.choice(WITH_F16 + WITHOUT_F16 if with_f16 else WITHOUT_F16) for _ in range(n_class)]
    if with_f16 and not set(devices) & set(WITH_F16):
        devices[draw.randrange(n_class)] = draw.choice(WITH_F16)
    return devices


def count_plans(problem, precisions):
    count = 1
    for one in problem.classes:
        count *= len(precisions[one["device"]]) ** problem.n_op
    return count


def draw_cluster(problem, precisions):
    """A model and classes with so many plans that each can be replayed."""
    draw = problem.draw
    n_class = 3 if problem.number % 4 == 3 else draw.choice([1, 2, 2])  # so that there are enough of three
    with_f16 = draw.random() < 0.65
    measured = n_class > 1 and draw.random() < 0.15
    models = MEASURED_MODELS if measured else PREDICTED_MODELS
    while True:
        problem.model = draw.choice(sorted(models))
        problem.n_op = models[problem.model]
        devices = draw_devices(problem, n_class, measured, with_f16)
        problem.classes = [{"device": d, "ranks": 1, "per_node": None, "batch": None, "slow": None} for d in devices]
        problem.predict = any(d not in MEASURED for d in devices)
        count = count_plans(problem, precisions)
        if not FEWEST <= count <= MOST:
            continue
        if draw.random() < (0.35 if count < 256 else 1 if count < 800 else 0.4):
            break
    problem.measured = [d for d in devices if d in MEASURED]
    problem.batch = MEASURED_BATCH if measured else draw.choice([1, 4, 8, 16, 16, 32, 64, 256])
    problem.net = draw.choice(NETS)
    if measured:
        is_apart = draw.random() < 0.3
        problem.node = "40Gbit/s,2us"
        for one in problem.classes:
            one["per_node"] = 1 if is_apart else None
        return
    if len(problem.classes) == 1 and draw.random() < 0.3:
        problem.net = None
    for one in problem.classes:
        one["ranks"] = draw.choice([1, 1, 1, 2, 4, 8]) if problem.net else 1
        one["per_node"] = draw.choice([None, 1, one["ranks"]]) if problem.net else None
        if draw.random() < 0.2:
            one["batch"] = draw.choice([2, 8, 24, 48])
        if draw.random() < 0.08:
            one["slow"] = draw.choice([1.05, 1.25])
    if problem.net and draw.random() < 0.2:
        problem.node = draw.choice(["100GB/s,2us", "12GB/s,3us"])


def draw_goal(problem):
    draw = problem.draw
    goal = draw.choices(
        ["none", "slowdown", "max-step", "max-sensitivity", "memory", "training-time", "pareto", "batch"],
        [26, 22, 14, 11, 9, 4, 7, 9],
    )[0]
    if goal == "batch" and (len(problem.classes) == 1 or problem.measured):
        goal = "slowdown"
    if goal in ("slowdown", "memory") or (goal == "batch" and draw.random() < 0.5):
        problem.slowdown = draw.choice([0, 0, 0.5, 1, 2, 3, 5, 10, 25, 60, 150])
    if goal == "max-step":
        problem.step_share = draw.choice([-0.2, 0, 0.1, 0.3, 0.5, 0.7, 0.9, 1, 1.2])
    if goal == "max-sensitivity" or (goal == "memory" and draw.random() < 0.4):
        problem.sensitivity_share = draw.choice([0, 0.001, 0.01, 0.1, 0.3, 0.6, 1])
    if goal in ("memory", "training-time"):
        problem.minimize = goal
    if goal == "memory" and draw.random() < 0.3:
        problem.slowdown, problem.step_share = None, draw.choice([0.2, 0.6, 1])
    if goal == "pareto":
        problem.question, problem.points = "pareto", draw.choice([3, 5, 8, 16])
    if goal == "batch":
        problem.question = "batch"
        n_rank = sum(one["ranks"] for one in problem.classes)
        problem.global_batch = n_rank * draw.choice([1, 2, 4, 8])
    return goal


def draw_policy(problem, goal, precisions):
    draw = problem.draw
    problem.policy = draw.choices(["exact", "greedy", "qsync"], [80, 13, 7])[0]
    if goal == "none" and draw.random() < 0.2:
        common = set.intersection(*(set(precisions[one["device"]]) for one in problem.classes))
        problem.policy, problem.uniform = "uniform", draw.choice(sorted(common))


def draw_step(problem):
    """How the step runs: micro-steps, recomputation, buckets, what gradients travel in."""
    draw = problem.draw
    if draw.random() < 0.12:
        problem.wire = "bf16"
    if draw.random() < 0.12:
        problem.accumulate = draw.choice([2, 3, 4])
        if problem.global_batch:
            problem.global_batch *= problem.accumulate
    if draw.random() < 0.15 and problem.n_op > 2:
        problem.recompute = draw.choice(["sqrt", "2"])
    if not problem.measured and draw.random() < 0.35:
        problem.bucket = draw.choice([1024, 16384, 65536, 262144, 1048576])
    if problem.predict and draw.random() < 0.15:
        problem.collective = draw.choice(["tree", "halving-doubling", "hierarchical", "auto"])
    if not problem.measured and draw.random() < 0.1:
        problem.kernels = draw.choice(["pytorch", "pytorch-nhwc"])
        problem.without_update = draw.random() < 0.4
    if draw.random() < 0.05:
        problem.clip = "1"
    elif draw.random() < 0.07:
        problem.loss_scale = draw.choice(["dynamic", "1024", "65536"])


def draw_method(problem, goal):
    """Now and then a method that only ranks; goals in percent of samples are not for it."""
    draw = problem.draw
    problem.explains = problem.question == "plan" and draw.random() < 0.2
    if draw.random() < 0.1 and goal in ("none", "slowdown", "max-step", "pareto", "memory"):
        if problem.sensitivity_share is None:
            problem.method = draw.choice(["fisher", "qsync"])


def draw_problem(number, seed, precisions):
    """precisions: of each device, the names of those that it has. Number 0 is no drawn one: two cards, of which one
    is so much slower in a step with a norm that a plan without f16 is the best."""
    problem = Problem(number, seed)
    if number == 0:
        problem.model, problem.n_op, problem.net = "mlp:depth=1", 2, "10Gbit/s,5us"
        problem.classes = [{"device": d, "ranks": 1, "per_node": None, "batch": None, "slow": None} for d in ("t4", "l4")]
        return problem
    draw_cluster(problem, precisions)
    goal = draw_goal(problem)
    draw_policy(problem, goal, precisions)
    draw_step(problem)
    draw_method(problem, goal)
    others = set.intersection(*(set(precisions[one["device"]]) for one in problem.classes)) - {"fp32"}
    if others & {"bf16", "fp16", "tf32"} and problem.draw.random() < 0.25:
        problem.base = problem.draw.choice(sorted(others & {"bf16", "fp16", "tf32"}))
    if number % 4 == 1 or problem.draw.random() < 0.08:
        problem.memory_share = problem.draw.choice([-1, 0.05, 0.2, 0.4, 0.6, 0.7])
        problem.memory_is_per_class = problem.draw.random() < 0.7
    return problem
