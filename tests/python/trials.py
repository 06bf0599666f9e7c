"""compare_loss: against trainings and intervals of this test, what is put back, filed and refused."""

import contextlib
import dataclasses
import json
import math
import os
import random
import statistics
import unittest
import warnings
from unittest import mock

from support import Case
import numpy
import torch
import torch.nn.functional as F

import tandem
from tandem._branch import Branch
from tandem._structs import TRIAL_LEAST_STEPS, TrialQuestion
from tandem._trial import _Progress

STEPS, BATCH, CLASSES = 24, 8, 3
T_95_OF_3_PAIRS = 4.302652729696142  # Student's t with 2 degrees of freedom, both sides


class Small(torch.nn.Module):
    """With all that draws, and with what training changes beside weights."""

    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(6, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.fc2 = torch.nn.Linear(16, CLASSES)
        self.n_forward = 0

    def forward(self, x):
        self.n_forward += 1
        return self.fc2(F.dropout(torch.relu(self.norm(self.fc1(x))), 0.1, self.training))


class Edge(torch.nn.Module):
    """From the sixth step on it has the logarithm of what bf16 rounds to 0, so that its loss is infinite."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, CLASSES)
        self.edge = torch.nn.Linear(1, 1, bias=False)
        self.edge.weight.data.fill_(1 + 2**-12)
        self.edge.weight.requires_grad = False
        self.register_buffer("step", torch.tensor(0))

    def forward(self, x):
        self.step += 1
        log = torch.log(self.edge(torch.ones(1, 1)) - 1)
        return self.fc(x) + 1e-3 * log if self.step > 5 else self.fc(x)


def make_batches(n=40, seed=1):
    draw = torch.Generator().manual_seed(seed)
    of_class = torch.randn(CLASSES, 6, generator=draw)
    y = [torch.randint(0, CLASSES, (BATCH,), generator=draw) for _ in range(n)]
    return [(of_class[one] + 0.3 * torch.randn(BATCH, 6, generator=draw), one) for one in y]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.5)


def train_on(module):
    """Some steps, so that the module has gradients and statistics."""
    for x, y in make_batches(3, 9):
        F.cross_entropy(module(x), y).backward()


def mean_loss(module, batches):
    return statistics.mean(float(F.cross_entropy(module(x), y)) for x, y in batches)


@contextlib.contextmanager
def without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Trials(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(0)
        self.module, self.batches = Small(), make_batches()
        self.resume = os.path.join(self.folder, "trial.jsonl")

    def trial(self, plan="int8_full", module=None, batches=None, loss=F.cross_entropy, **options):
        given = {"optimizer": sgd, "steps": STEPS, "pairs": 3, **options}
        batches = self.batches if batches is None else batches
        return tandem.compare_loss(module or self.module, plan, batches, loss, **given)

    def filed(self, path=None):
        with open(path or self.resume, encoding="ascii") as file:
            return [json.loads(line) for line in file]


class Measured(Trials):
    def test_a_plan_in_fp32_costs_nothing(self):
        precisions = {"fc1": "fp32", "fc2": "fp32"}
        for plan in ("fp32", precisions):
            found = self.trial(plan, held_out=make_batches(2, 5))
            for one in (found.training, found.held_out, found.held_out_in_base):
                self.assertEqual((one.mean, one.low, one.high), (0, 0, 0), str(found))
            for share in vars(found.extra_samples).values():  # which the library finds by bisection
                self.assertAlmostEqual(share, 0, delta=1e-14)
            self.assertEqual((found.pairs, found.diverged, found.answer, found.known), (3, 0, None, 0))
            self.assertTrue(str(found).startswith("extra samples: 0 % (95 %: 0 to 0 %)"), str(found))

    def test_intervals_are_those_of_the_losses(self):
        """Against the losses in the file, by formulas of this test."""
        found = self.trial(held_out=iter(make_batches(3, 5)), resume=self.resume)
        base, plan = ([one for one in self.filed() if one["kind"] == kind] for kind in ("base", "plan"))
        late = lambda of: statistics.mean(of["losses"][-(STEPS // 4) :])  # noqa: E731
        for made, of_plan, of_base in (
            (found.training, late, late),
            (found.held_out, lambda of: of["held_out"], lambda of: of["held_out"]),
            (found.held_out_in_base, lambda of: of["held_out_in_base"], lambda of: of["held_out"]),
        ):
            apart = [of_plan(p) - of_base(b) for p, b in zip(plan, base)]
            half = T_95_OF_3_PAIRS * statistics.stdev(apart) / math.sqrt(3)
            mean = statistics.mean(apart)
            self.assertGreater(half, 0)
            for got, wanted in ((made.mean, mean), (made.low, mean - half), (made.high, mean + half)):
                self.assertAlmostEqual(got, wanted, delta=1e-6 * half)
        self.assertNotEqual(found.held_out.mean, found.held_out_in_base.mean)
        self.assertAlmostEqual(found.base_loss, statistics.mean(map(late, base)), delta=1e-12)
        self.assertTrue(found.extra_samples.low < found.extra_samples.mean < found.extra_samples.high)

    def test_branches_are_trainings(self):
        """Each branch has the losses, to the bit, of a training that this test does by itself."""
        schedule = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)  # noqa: E731
        given, held_out = [], make_batches(2, 5)

        def batches(seed):
            given.append(seed)
            return random.Random(seed).sample(self.batches, STEPS)

        self.trial(batches=batches, schedule=schedule, held_out=held_out, resume=self.resume, pairs=2)
        lines = self.filed()
        self.assertEqual([line["kind"] for line in lines], ["base", "plan"] * 2)
        self.assertEqual([line["seed"] for line in lines], given)
        self.assertTrue(given[0] == given[1] != given[2] == given[3])
        weights = self.module.state_dict()
        for line in lines:
            module = Small()
            module.load_state_dict(weights)
            if line["kind"] == "plan":
                tandem.apply(module, "int8_full", seed=line["seed"])
            optimizer, losses = sgd(module.parameters()), []
            scheduler = schedule(optimizer)
            torch.manual_seed(line["seed"])
            for x, y in random.Random(line["seed"]).sample(self.batches, STEPS):
                optimizer.zero_grad()
                losses.append(F.cross_entropy(module(x), y))
                losses[-1].backward()
                optimizer.step()
                scheduler.step()
            self.assertEqual(line["losses"], [float(one) for one in losses])
            module.eval()
            self.assertEqual(line["held_out"], mean_loss(module, held_out))
            if line["kind"] == "plan":
                tandem.remove(module)
                self.assertEqual(line["held_out_in_base"], mean_loss(module, held_out))

    def test_plans_files_and_precisions_are_one(self):
        x, _ = self.batches[0]
        graph = tandem.capture(self.module, x)
        names = {call.name: "bf16" for call in graph.adjustable}
        classes = [tandem.PlanClass("here", 1, BATCH, names), tandem.PlanClass("there", 1, BATCH, {})]
        plan = tandem.Plan("bf16 by hand", graph.model, "here + there", classes, graph.hash, graph=graph)
        path = os.path.join(self.folder, "plan.json")
        plan.save(path)
        found = [self.trial(one, pairs=1) for one in (plan, path, names, "bf16")]
        self.assertEqual(len({one.training.mean for one in found}), 1)
        self.assertNotEqual(found[0].training.mean, 0)
        self.assertIn("bf16 by hand against fp32; 1 pair of 24 steps", str(found[1]))
        self.assertIn("(95 %: unknown; it takes two pairs)", str(found[0]))
        self.assertEqual(self.trial(plan, pairs=1, rank=1).training.mean, 0)
        # the base may be a precision, too
        self.assertEqual(self.trial(path, pairs=1, base="bf16").training.mean, 0)

    def test_an_optimizer_goes_on_with_its_state(self):
        for make in (sgd, lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)):
            optimizer = make(self.module.parameters())
            train_on(self.module)
            optimizer.step()
            before = json.dumps(optimizer.state_dict(), default=repr)
            going, fresh = (
                self.trial("fp32", optimizer=one, resume=f"{self.resume}{k}", pairs=1)
                for k, one in enumerate((optimizer, make))
            )
            first, second = (self.filed(f"{self.resume}{k}")[0]["losses"] for k in range(2))
            self.assertEqual(first[0], second[0])
            self.assertNotEqual(first[1:], second[1:])
            self.assertEqual((going.training.mean, fresh.training.mean), (0, 0))
            self.assertEqual(json.dumps(optimizer.state_dict(), default=repr), before)
            for k in range(2):
                os.remove(f"{self.resume}{k}")


class Unchanged(Trials):
    def test_the_module_and_random_numbers_are_put_back(self):
        train_on(self.module)
        tandem.apply(self.module, "bf16")
        self.module.norm.eval()
        self.module.zero_grad()
        train_on(self.module)

        def state():
            numbers = [one.clone() for one in self.module.state_dict().values()]
            numbers += [one.grad.clone() for one in self.module.parameters()]
            numbers += [torch.get_rng_state(), torch.tensor(numpy.random.get_state()[1].astype("int64"))]
            modes = [one.training for one in self.module.modules()]
            rest = (modes, tandem.applied(self.module), self.module.n_forward, random.getstate())
            return numbers, rest

        def draws(output, target):
            random.random(), numpy.random.random()
            return F.cross_entropy(output, target)

        places = [one.data_ptr() for one in self.module.parameters()]
        tensors, rest = state()
        for outcome in (True, False):
            with contextlib.nullcontext() if outcome else self.assertRaises(tandem.InfeasibleError):
                rate = 0.05 if outcome else 1e30
                optimizer = lambda parameters: torch.optim.SGD(parameters, lr=rate)  # noqa: E731,B023
                self.trial("int8", loss=draws, held_out=make_batches(2, 5), optimizer=optimizer, pairs=1)
            now, rest_now = state()
            self.assertEqual(rest_now, rest)
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(now, tensors)))
            self.assertEqual([one.data_ptr() for one in self.module.parameters()], places)
        found = self.trial("bf16", pairs=1)  # its base is the module without what apply gave it
        tandem.remove(self.module)
        self.assertEqual(found.training, self.trial("bf16", pairs=1).training)

    def test_a_module_in_evaluation_mode_trains(self):
        self.module.eval()
        of_eval = self.trial(pairs=1)
        self.assertFalse(self.module.training)
        self.module.train()
        self.assertEqual(self.trial(pairs=1), dataclasses.replace(of_eval, pair_seconds=mock.ANY))


class Decided(Trials):
    def test_it_ends_when_it_is_decided(self):
        found = self.trial("fp32", at_most=0.005, pairs=8)
        self.assertEqual((found.answer, found.pairs, found.pairs_needed), ("within", 3, 0))
        text = "yes: not more than 0.5 % extra samples, after 3 pairs\n"
        self.assertTrue(str(found).startswith(text), str(found))

    def test_more_pairs_may_decide(self):
        with mock.patch("tandem._trial.TrialQuestion", side_effect=TrialQuestion) as asked:
            found = self.trial("int8_full", at_most=0.0, pairs=4)
        self.assertEqual(asked.call_args_list, [mock.call(STEPS, 0.0, 2)] * 4)
        self.assertEqual((found.answer, found.pairs), ("undecided", 4))
        self.assertTrue(found.pairs_needed > 4 or found.pairs_needed == -1, found.pairs_needed)
        self.assertGreater(found.pair_seconds, 0)
        for needed, text in (
            (9, "undecided after 4 pairs: 5 more (pairs=9) may decide, in some 5 min\n"),
            (-1, "undecided after 4 pairs; 256 would not decide: take more steps\n"),
        ):
            said = str(dataclasses.replace(found, pairs_needed=needed, pair_seconds=60.0))
            self.assertTrue(said.startswith(text), said)

    def test_a_loss_that_does_not_fall_says_so(self):
        still = lambda parameters: torch.optim.SGD(parameters, lr=0.0)  # noqa: E731
        options = {"batches": self.batches[:1], "optimizer": still, "module": torch.nn.Linear(6, 3)}
        with self.assertWarns(UserWarning):
            found = self.trial("int8", at_most=0.01, **options)
        self.assertTrue(math.isnan(found.extra_samples.mean))
        self.assertTrue(str(found).startswith("unknown: the loss of fp32 does not fall"), str(found))
        self.assertIn("extra samples: unknown", str(found))

    def test_a_plan_that_diverges(self):
        module = Edge()
        plan = {"edge": "bf16"}
        options = {"at_most": 0.1, "pairs": 8, "held_out": self.batches[:2]}
        found = self.trial(plan, module=module, resume=self.resume, **options)
        self.assertEqual((found.answer, found.pairs, found.diverged), ("beyond", 1, 1))
        self.assertEqual((found.training.mean, found.held_out.mean), (math.inf, math.inf))
        self.assertTrue(str(found).startswith("no: more than 10 % extra samples, after 1 pair\n"), str(found))
        self.assertIn("diverged: the plan, in 1 of 1 pair\n", str(found))
        self.assertIn("extra samples: without limit", str(found))
        self.assertEqual([len(line["losses"]) for line in self.filed()], [STEPS, 5])
        self.assertEqual(self.trial(plan, module=module, pairs=2).diverged, 2)

    def test_a_loss_that_refuses_what_is_not_finite(self):
        """Such a branch has diverged where its weights are not finite; another error is one."""

        def loss(output, target):
            if not torch.isfinite(output).all():
                raise ValueError("not finite")
            return 1000 * F.cross_entropy(output, target)

        with self.assertRaisesRegex(ValueError, "not finite"):  # all weights are: the logarithm is not
            self.trial({"edge": "bf16"}, module=Edge(), loss=loss, pairs=1)
        wild = lambda parameters: torch.optim.SGD(parameters, lr=1e38)  # noqa: E731
        with self.assertRaisesRegex(tandem.InfeasibleError, "the base itself diverges in pair 1"):
            self.trial("fp32", module=torch.nn.Linear(6, CLASSES), loss=loss, optimizer=wild)

    def test_a_base_that_diverges(self):
        wild = lambda parameters: torch.optim.SGD(parameters, lr=1e30)  # noqa: E731
        text = "the base itself diverges in pair 1: its loss is not finite. Lower the learning rate"
        with self.assertRaisesRegex(tandem.InfeasibleError, text):
            self.trial("fp32", optimizer=wild, resume=self.resume)
        self.assertEqual([line["kind"] for line in self.filed()], ["base"])


class Refused(Trials):
    def refuses(self, text, **given):
        with without_warnings(), self.assertRaisesRegex(tandem.TandemError, text):
            self.trial(**given)

    def test_what_is_refused(self):
        least = TRIAL_LEAST_STEPS
        loader = torch.utils.data.DataLoader(self.batches)
        self.refuses("optimizer=None: a trial trains", optimizer=None)
        self.refuses("which is no torch.optim.Optimizer", optimizer=list)
        self.refuses("parameters that are not the module's", optimizer=sgd(Small().parameters()))
        self.refuses(f"a branch of {least - 1} steps: it takes {least} or more", steps=least - 1)
        self.refuses("0 pairs: allowed are 1 to 256", pairs=0)
        self.refuses("2 pairs decide nothing", pairs=2, at_most=0.1)
        self.refuses("at_most=-0.1: it is a share", at_most=-0.1)
        self.refuses("'every call' in tf32", base="tf32")
        self.refuses("plan.json", base="plan.json")
        self.refuses("modules run in fp32, bf16", plan="fp16")
        self.refuses("batches is a DataLoader.*list\\(loader\\).*lambda seed: loader", batches=loader)
        self.refuses("held_out has no batches", held_out=iter([]))
        fixed = torch.nn.Linear(6, 3).requires_grad_(False)
        self.refuses("no parameter of Linear needs a gradient", module=fixed)
        self.assertEqual(self.module.n_forward, 0)

    def test_too_few_batches(self):
        self.refuses("no batches were given; a branch needs 1 or more", batches=tuple())
        self.refuses("batches gave none; a branch", batches=lambda seed: [])
        once = iter(self.batches[:5])
        self.refuses("batches gave none again: it must give a new iterator", batches=lambda seed: once)

    def test_batches_that_are_fewer_come_again_in_another_order(self):
        few, seen = self.batches[: STEPS // 3], []

        def loss(output, target):
            seen.append([k for k, (_, y) in enumerate(few) if y is target][0])
            return F.cross_entropy(output, target)

        for given in (few, lambda seed: random.Random(seed).sample(few, len(few))):
            del seen[:]
            with self.assertWarnsRegex(UserWarning, "fewer batches than steps: they come again in"):
                found = self.trial(batches=given, loss=loss, pairs=2)
            self.assertEqual(len(found.notes), 1)
            self.assertIn("note: there are fewer batches than steps", str(found))
            branches = [seen[k : k + STEPS] for k in range(0, 4 * STEPS, STEPS)]
            self.assertEqual(branches[0], branches[1])
            self.assertEqual(branches[2], branches[3])
            self.assertNotEqual(branches[0], branches[2])
            orders = [tuple(branches[0][k : k + len(few)]) for k in range(0, STEPS, len(few))]
            self.assertEqual([sorted(one) for one in orders], [list(range(len(few)))] * 3)
            self.assertEqual(len(set(orders)), 3)

    def test_batches_that_are_not_those_of_the_seed(self):
        draw = random.Random(3)
        self.refuses(
            "the branches of pair 1 began with different batches",
            batches=lambda seed: draw.sample(self.batches, STEPS),
        )
        with self.assertWarnsRegex(UserWarning, "both pairs began with the same batch"):
            found = self.trial(batches=lambda seed: self.batches)
        self.assertIn("intervals are too narrow", str(found))
        loader = torch.utils.data.DataLoader(self.batches, batch_size=None, shuffle=True)
        with without_warnings():  # which shuffles by PyTorch's random numbers, which the pair's seed begins
            self.assertEqual(self.trial("fp32", batches=lambda seed: loader).training.mean, 0)


class Resumed(Trials):
    def setUp(self):
        super().setUp()
        self.n_loss = 0

    def count(self, *given, **options):
        """A trial, and how many steps it took."""

        def loss(output, target):
            self.n_loss += 1
            return F.cross_entropy(output, target)

        self.n_loss = 0
        return self.trial(*given, loss=loss, resume=self.resume, **options), self.n_loss / STEPS

    def test_nothing_is_trained_twice(self):
        first, n = self.count(pairs=2)
        self.assertEqual((n, first.known), (4, 0))
        second, n = self.count(pairs=2)
        self.assertEqual((n, second.known), (0, 4))
        self.assertEqual((second.training, second.extra_samples), (first.training, first.extra_samples))
        third, n = self.count(pairs=3)
        self.assertEqual((n, third.known, third.pairs), (2, 4, 3))
        other, n = self.count("bf16", pairs=3)  # has the same base
        self.assertEqual((n, other.known), (3, 3))
        self.assertEqual(other.training, self.trial("bf16", pairs=3).training)

    def test_what_decides_the_losses_trains_again(self):
        self.count(pairs=1)
        for changed in (
            {"seed": 1},
            {"steps": STEPS + 1},
            {"rank": 1},
            {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.051, momentum=0.5)},
            {"schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)},
            {"schedule": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.6)},
            {"held_out": self.batches[:1]},
            {"batches": make_batches(seed=2)},
            {"base": "bf16"},
        ):
            self.assertEqual(self.count(pairs=1, **changed)[0].known, 0, changed)
        self.assertEqual(self.count(pairs=1)[0].known, 2)
        with torch.no_grad():
            self.module.fc1.weight[0, 0] += 1e-6
        self.assertEqual(self.count(pairs=1)[0].known, 0)

    def test_a_file_that_was_cut(self):
        self.count(pairs=1)
        with open(self.resume, "rb") as file:
            whole = file.read()
        for cut in (3, 40, 300):
            with open(self.resume, "wb") as file:
                file.write(whole + whole[:cut])
            self.assertEqual(self.count(pairs=1)[0].known, 2)
            with open(self.resume, "rb") as file:
                self.assertEqual(file.read(), whole)
        for wrong in (b"other", b"{}\n", whole + b'{"schema": "tandem.trial_branch/1"}\n'):
            with open(self.resume, "wb") as file:
                file.write(wrong)
            with self.assertRaisesRegex(tandem.MalformedError, r"line \d: no branch of a trial"):
                self.count(pairs=1)
            with open(self.resume, "rb") as file:
                self.assertEqual(file.read(), wrong)

    def test_notes_are_those_of_known_branches_too(self):
        for n_known in (0, 2):
            with self.assertWarns(UserWarning):
                found = self.trial(batches=self.batches[:5], pairs=1, resume=self.resume)
            self.assertEqual((found.known, len(found.notes)), (n_known, 1))

    def test_progress_says_where_it_is(self):
        lines = []
        self.trial(pairs=2, progress=lines.append)
        ends = [line for line in lines if f"step {STEPS} of {STEPS}, loss 0." in line]
        self.assertEqual(len(ends), 4, lines)
        text = r"^pair 1 of at most 2, base: step 24 of 24, loss \S+, \S+ (us|ms|s|min) left$"
        self.assertRegex(ends[0], text)
        self.assertRegex(ends[3], r"^pair 2 of at most 2, plan: step 24 of 24, loss \S+$")

    def test_the_time_that_is_left(self):
        lines = []
        progress = _Progress(lines.append, pairs=2, steps=10)
        progress.step("base", 0, 5, 0.25, 10.0)  # 10 s of this branch, and three of 20 s
        progress.add(Branch("base", 0, 0, 10, [0.25] * 10, None, None, 20.0, ""))
        progress.add(Branch("plan", 0, 0, 10, [0.25] * 10, None, None, 120.0, ""))
        progress.add(Branch("plan", 0, 0, 10, [0.25] * 3, None, None, 7.0, ""))  # one that diverged
        progress.step("base", 1, 10, 0.5, 30.0)
        self.assertEqual(
            lines,
            [
                "pair 1 of at most 2, base: step 5 of 10, loss 0.25, 70 s left",
                "pair 2 of at most 2, base: step 10 of 10, loss 0.5, 2 min left",
            ],
        )


if __name__ == "__main__":
    unittest.main()
