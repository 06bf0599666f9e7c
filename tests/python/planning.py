"""profile, sensitivity, replay, allocate: from a module to a plan, and what is refused."""

import json
import math
import os
import sqlite3
import statistics
import subprocess
import unittest

from support import BUILD, ROOT, Case
import torch
import torch.nn.functional as F

import tandem
from tandem._estimated import Estimate


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(16)
        self.fc = torch.nn.Linear(16, 4)
        self.again = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.again(self.again(self.fc(F.relu(self.norm(self.conv(x))).mean((2, 3)))))


X, Y = torch.randn(8, 3, 12, 12), torch.randint(0, 4, (8,))
BATCHES = [(torch.randn(8, 3, 12, 12), torch.randint(0, 4, (8,))) for _ in range(6)]


def loss(output):
    return F.cross_entropy(output, Y)


class Profile(Case):
    def profiled(self, **options):
        torch.manual_seed(0)
        module = Net()
        return module, tandem.profile(
            module, X, loss, device="torch:one", store=self.store, steps=4, warmup=1, **options
        )

    def test_every_precision_can_be_replayed(self):
        module, profile = self.profiled()
        for precision, step in profile.steps.items():
            replayed = tandem.replay(profile.graph, "torch:one", precision, store=self.store)
            self.assertGreater(replayed.step, 0)
            self.assertGreater(step, profile.update)
            self.assertEqual(replayed.measured, 1.0)
        of = {(one.call, one.precision): one for one in profile.calls}
        self.assertTrue(all(one.forward >= 0 and one.backward >= 0 for one in profile.calls))
        self.assertGreater(of["conv", "fp32"].forward, 0)
        self.assertGreater(of["conv", "int8_full"].backward, 0)
        self.assertIn("step", str(profile))

    def test_the_step_is_the_sum_of_its_calls(self):
        _, profile = self.profiled(precisions=["fp32"])
        with sqlite3.connect(self.store) as store:
            filed = store.execute(
                "SELECT signature, pass, sum_ns / n FROM op_cost "
                "JOIN operator ON operator.id = op_cost.operator "
                "WHERE precision = 'fp32' AND operand = 'f32' AND result = 'f32'"
            ).fetchall()
        ns = {(signature, name): mean for signature, name, mean in filed}
        graph, total = profile.graph, 0
        signatures = [
            "conv2d n=8 h=12 w=12 c=3 -> c=16 k=3x3 s=1 p=1",
            "linear m=8 k=16 n=4",
            "linear m=8 k=4 n=4",
            "matmul batch=1 m=8 k=4 n=4 tb=1",
        ]
        for signature in signatures:
            self.assertIn((signature, "forward"), ns)
            self.assertIn((signature, "wgrad"), ns)
        step = sum(mean for (signature, _), mean in ns.items() if not signature.startswith("accumulate"))
        replayed = tandem.replay(graph, "torch:one", store=self.store).step * 1e9
        self.assertAlmostEqual(step / replayed, 1, delta=0.02)

    def test_the_module_is_as_it_was(self):
        torch.manual_seed(0)
        expected = {name: value.clone() for name, value in Net().state_dict().items()}
        module, _ = self.profiled(precisions=["fp32"])
        self.assertEqual(set(module.state_dict()), set(expected))
        for name, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, expected[name]), name)
        self.assertTrue(all(parameter.grad is None for parameter in module.parameters()))
        self.assertEqual(tandem.applied(module), {})

    def test_what_profile_refuses(self):
        with self.assertRaisesRegex(tandem.UsageError, "torch:NAME"):
            tandem.profile(
                Net(), X, loss, device="cpu:avx2", store=self.store, steps=1, warmup=0, precisions=["fp32"]
            )
        with self.assertRaisesRegex(tandem.UsageError, "got precision 'fp8'"):
            tandem.profile(Net(), X, loss, store=self.store, precisions=["fp8"])
        with self.assertRaisesRegex(tandem.UsageError, "a dict of plans by name.*; got .'fp32'"):
            tandem.compare(Net(), X, ["fp32"], "torch:one", loss, store=self.store)
        self.assertFalse(os.path.exists(self.store))

        class Random(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.calls = torch.nn.Linear(3, 3), 0

            def forward(self, x):
                self.calls += 1
                return self.fc(x) if self.calls % 3 else self.fc(torch.relu(x))

        with self.assertRaisesRegex(tandem.MalformedError, "Random made . calls in one step"):
            tandem.profile(Random(), torch.randn(2, 3), store=self.store, steps=4)

    def test_a_plan_of_a_module(self):
        module, profile = self.profiled(precisions=["fp32", "int8_full"])
        with self.assertRaisesRegex(tandem.MissingError, "Net has no estimate, and .*: tandem.sensitivity"):
            tandem.allocate(profile.graph, "torch:one", store=self.store)
        with self.assertRaisesRegex(tandem.MissingError, "there are no statistics of Net"):
            tandem.allocate(profile.graph, "torch:one", store=self.store, method="fisher")
        tandem.sensitivity(module, [(X, Y)] * 2, F.cross_entropy, store=self.store, method="fisher")
        plan = tandem.allocate(profile.graph, "torch:one", store=self.store, slowdown=0.1, method="fisher")
        is_fp32 = set(plan.precision().values()) == {"fp32"}  # which needs no more samples, estimated or not
        self.assertRegex(str(plan), r"sensitivity 0 % more samples" if is_fp32 else r"sensitivity \S+ nats; ")
        self.assertEqual({plan.sensitivity, plan.sensitivity_low, plan.sensitivity_high}, {0.0 if is_fp32 else None})
        self.assertGreaterEqual(plan.sensitivity_bound, 0)
        for goal, word in (({"max_sensitivity": 0.01}, "percent"), ({"minimize": "training-time"}, "percent"),
                           ({"max_sensitivity": -1}, "more samples"), ({"minimize": "speed"}, "training-time"),
                           ({"minimize": "training-time", "max_sensitivity": 0.01}, "contradict")):  # fmt: skip
            with self.assertRaisesRegex(tandem.TandemError, word):
                tandem.allocate(profile.graph, "torch:one", store=self.store, method="fisher", **goal)
        self.assertEqual(set(plan.precision(0)), {"conv", "fc", "again", "again_1"})
        self.assertLessEqual(plan.step, plan.base_step)
        self.assertIsNotNone(plan.lower_bound)
        path = os.path.join(self.folder, "plan.json")
        plan.save(path)
        loaded = tandem.Plan.load(path)
        self.assertEqual((loaded.classes, loaded.hash, loaded.graph), (plan.classes, plan.hash, plan.graph))
        replayed = tandem.replay(profile.graph, "torch:one", loaded, store=self.store)
        self.assertAlmostEqual(replayed.step, plan.step, delta=1e-9)
        tandem.apply(module, path)(X)
        with open(path, encoding="ascii") as file:
            text = file.read()
        with open(path, "w", encoding="ascii") as file:
            file.write(text.replace('"fc": "', '"fc": "no', 1))
        with self.assertRaisesRegex(tandem.MalformedError, "'fc'"):
            tandem.Plan.load(path)
        with open(path, "w", encoding="ascii") as file:
            file.write(text.replace(plan.hash, "0123456789abcdef", 1))
        with self.assertRaisesRegex(tandem.WrongModelError, "0123456789abcdef"):
            tandem.Plan.load(path)

    def test_what_was_not_measured_is_missing_by_name(self):
        _, profile = self.profiled(precisions=["fp32"])
        with self.assertRaisesRegex(tandem.MissingError, "conv.*torch:one"):
            tandem.replay(profile.graph, "torch:one", "int8_full", store=self.store)
        with self.assertRaisesRegex(
            tandem.MissingError, r'Net has been measured on torch:two; .*`tandem.profile\(.*device="torch:two"\)`'
        ):
            tandem.replay(profile.graph, "torch:two", store=self.store)
        with self.assertRaisesRegex(tandem.WrongModelError, "batch 3.*captured with batch 8"):
            tandem.replay(profile.graph, "torch:one batch=3", store=self.store)


class CommandLine(Case):
    """A saved graph is a model of the command line, and what that plans runs here."""

    CLUSTER = "torch:one + 2*torch:one net=10Gbit/s,20us"

    def tandem(self, *words, code=0):
        ran = subprocess.run(
            [os.path.join(BUILD, "tandem"), *words], cwd=self.folder, capture_output=True, text=True
        )
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stdout if code == 0 else ran.stderr

    def saved(self):
        """own.json and a store with costs and an estimate; the module and its graph."""
        torch.manual_seed(0)
        module = Net()
        profile = tandem.profile(
            module, X, loss, device="torch:one", store=self.store, steps=4, precisions=["fp32", "int8_full"]
        )
        tandem.sensitivity(module, BATCHES, F.cross_entropy, store=self.store)
        profile.graph.save(os.path.join(self.folder, "own.json"))
        return module, profile.graph

    def test_both_say_the_same(self):
        module, graph = self.saved()
        own = ["--model", "own.json", "--cluster", self.CLUSTER, "--db", self.store]
        printed = json.loads(self.tandem("replay", *own, "--uniform", "int8_full", "--json"))
        here = tandem.replay(graph, self.CLUSTER, "int8_full", store=self.store)
        self.assertEqual(printed["step_ns"], round(here.step * 1e9))
        self.assertAlmostEqual(printed["sensitivity"], here.sensitivity, places=9)
        self.assertEqual([one["batch"] for one in printed["devices"]], [8, 8])  # the capture's own
        table = self.tandem("replay", *own)
        peaks = [one.memory_bytes for one in here.classes]
        self.assertTrue(all(peaks), peaks)
        self.assertRegex(table, r"torch:one +2 +8 .* \d+ KiB\n")
        self.assertEqual([one["peak_bytes"] for one in printed["devices"]], peaks)
        planned = json.loads(self.tandem("allocate", *own, "--json"))
        self.assertTrue(all(planned["peak_bytes"]))
        self.assertRegex(self.tandem("advise", *own, "--add", "torch:one"), "added|add them|Add them")
        self.tandem("allocate", *own, "-o", "plan.json")
        with open(os.path.join(self.folder, "plan.json"), encoding="ascii") as file:
            written = json.load(file)
        self.assertEqual((written["model"], written["graph_hash"]), ("own.json", graph.hash))
        self.assertIn("step", self.tandem("replay", "--plan", "plan.json", "--db", self.store))
        there = os.getcwd()
        self.addCleanup(os.chdir, there)
        os.chdir(self.folder)
        plan, made = tandem.Plan.load("plan.json"), tandem.allocate("own.json", self.CLUSTER, store=self.store)
        self.assertEqual([one.precision for one in plan.classes], [one.precision for one in made.classes])
        self.assertAlmostEqual(plan.step, made.step, delta=1e-9)
        tandem.apply(module, "plan.json", rank=2)
        self.assertEqual(tandem.applied(module), plan.precision(2))
        module(X)

    def test_buckets_are_those_of_ddp(self):
        module = torch.nn.Sequential(*[torch.nn.Linear(600, 600) for _ in range(4)])
        tandem.capture(module, torch.randn(2, 600)).save(os.path.join(self.folder, "own.json"))
        cluster = ["--cluster", "2*t4@1 net=10Gbit/s,5us", "--predict", "--json"]
        printed = json.loads(self.tandem("replay", "--model", "own.json", *cluster))
        buckets = [one["bytes"] for one in printed["all_reduce"]["buckets"]]
        layers = [round(one / (4 * 601 * 600), 3) for one in buckets]  # arrays begin at multiples of 64
        self.assertEqual(layers, [1, 3])  # the first closes at 1 MiB

    def test_what_is_refused(self):
        self.saved()
        path = os.path.join(self.folder, "own.json")
        printed = self.tandem("replay", "--model", "own.json", "--cluster", "t4 batch=3", "--predict", code=2)
        self.assertIn("was captured with batch 8, and batch 3 was asked for. How a step grows", printed)
        graph = tandem.capture(Net(), X, memory=False, name="own")
        graph.save(os.path.join(self.folder, "without.json"))
        own = ["--model", "without.json", "--predict"]
        self.assertRegex(self.tandem("replay", *own, "--device", "t4"), r"t4 +1 +8 .* -\n")
        printed = self.tandem("replay", *own, "--cluster", "t4 batch=3", code=2)
        self.assertIn("was captured with batch 8, and batch 3 was asked for", printed)
        printed = self.tandem("allocate", *own, "--device", "t4", "--memory", "1GiB", code=2)
        self.assertIn("what PyTorch allocates", printed)
        for command in ("train", "profile"):
            printed = self.tandem(command, "--model", path, "--device", "weakest", code=4)
            self.assertRegex(printed, "own.json' is a module that PyTorch runs.*tandem.profile")
        with open(path, "a", encoding="ascii") as file:
            file.write("}")
        self.assertIn("not JSON", self.tandem("replay", "--model", path, "--device", "t4", code=3))
        self.assertIn("cannot be read", self.tandem("graph", "show", "none.json", code=5))


class Traces(Case):
    """Replays beside what torch.profiler recorded."""

    def recorded(self, module):
        """A file of export_chrome_trace of four steps, and their median in seconds, from its own JSON."""
        path = os.path.join(self.folder, "trace.json")
        optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=4, repeat=1)
        export = lambda profiler: profiler.export_chrome_trace(path)  # noqa: E731
        cpu = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=cpu, schedule=schedule, on_trace_ready=export) as profiler:
            for _ in range(5):
                optimizer.zero_grad()
                loss(module(X)).backward()
                optimizer.step()
                profiler.step()
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        events = events if isinstance(events, list) else events["traceEvents"]
        steps = [
            one["dur"] for one in events if one.get("name", "").startswith("ProfilerStep") and "dur" in one
        ]
        return path, statistics.median(steps) * 1e-6

    def test_a_replay_beside_its_trace(self):
        torch.manual_seed(0)
        module = Net()
        profile = tandem.profile(
            module, X, loss, device="torch:one", store=self.store, steps=4, precisions=["fp32"]
        )
        path, step = self.recorded(module)
        replayed = tandem.replay(profile.graph, "torch:one", store=self.store, trace=path)
        self.assertEqual([one.steps for one in replayed.recorded], [4])
        self.assertAlmostEqual(replayed.recorded_step / step, 1, delta=0.01)
        self.assertAlmostEqual(replayed.error, replayed.step / step - 1, delta=0.01)
        self.assertRegex(str(replayed), r"rank 0 recorded: step .*\n  error of the replay: [+-]")
        (row,) = tandem.compare(
            module, X, {"fp32": None}, "torch:one", loss, store=self.store, traces={"fp32": [path]}
        )
        self.assertEqual((row.measured, row.predicted), (replayed.recorded_step, replayed.step))

    def test_traces_of_two_ranks(self):
        traces = [os.path.join(ROOT, "tests", "data", "torch", f"gloo{rank}.json.gz") for rank in (0, 1)]
        found = tandem.replay("mlp", "2*t4@2 net=10Gbit/s,5us", batch=4, predict=True, trace=traces)
        self.assertEqual([one.rank for one in found.recorded], [0, 1])
        for one in found.recorded:
            self.assertAlmostEqual(one.compute + one.exposed_comm + one.idle, one.step, delta=0.01 * one.step)
        with self.assertRaisesRegex(tandem.WrongModelError, "of 1 ranks, and the cluster has 2"):
            tandem.replay("mlp", "2*t4@2 net=10Gbit/s,5us", batch=4, predict=True, trace=traces[0])
        path = os.path.join(self.folder, "cut.json")
        with open(path, "w", encoding="ascii") as file:
            file.write('{"traceEvents": [{"ph": "X", "name": ')
        with self.assertRaisesRegex(tandem.MalformedError, "cut.json"):
            tandem.replay("mlp", "t4", batch=4, predict=True, trace=path)
        with self.assertRaises(OSError):
            tandem.replay("mlp", "t4", batch=4, predict=True, trace=path + ".none")


class Sensitivity(Case):
    def test_statistics_are_those_of_the_formulas(self):
        """All sums of a linear layer and a convolution, from double arithmetic (docs/sensitivity.md)."""
        torch.manual_seed(0)
        module = Net()
        kept = {}
        module.fc.register_forward_hook(lambda m, i, o: kept.update(x=i[0].detach()))
        module.fc.register_full_backward_hook(lambda m, i, o: kept.update(g=o[0]))
        module.conv.register_full_backward_hook(lambda m, i, o: kept.update(conv_g=o[0]))
        loss(module(X)).backward()
        found = tandem.sensitivity(module, [(X, Y)], F.cross_entropy, store=self.store, method="fisher")
        with sqlite3.connect(self.store) as store:
            store.row_factory = sqlite3.Row
            rows = {row["op_name"]: dict(row) for row in store.execute("SELECT * FROM statistics")}
        self.assertEqual(set(rows), {"conv", "fc", "again", "again_1"})
        columns = F.unfold(X, 3, padding=1).transpose(1, 2).reshape(-1, 27)
        conv_g = kept["conv_g"].permute(0, 2, 3, 1).reshape(-1, 16)
        self.check(rows["fc"], kept["x"], module.fc.weight.t(), kept["g"])
        self.check(rows["conv"], columns, module.conv.weight.reshape(16, 27).t(), conv_g)
        self.assertEqual((rows["conv"]["x_elements"], rows["conv"]["local_batch"]), (X.numel(), 8))
        for of in found.values.values():
            self.assertEqual(of["fp32"].sensitivity, 0)
            self.assertGreater(of["int8_full"].sensitivity, 0)
            self.assertIsNone(of["int8_full"].low)

    def check(self, row, x, w, g):
        x, w, g = (one.detach().double() for one in (x, w, g))
        self.assertEqual((row["rows"], row["k"], row["columns"]), (x.shape[0], x.shape[1], w.shape[1]))
        c, d = (x**2).sum(0), (g**2).sum(0)
        expected = {
            "x_square": (columns_square := (x**2)).sum(),
            "w_square": (w**2).sum(),
            "g_square": (g**2).sum(),
            "w_amax": w.abs().max(),
            "g_amax": g.abs().max(),
            "wgrad_square": ((x.t() @ g) ** 2).sum(),
            "g2_w2": ((g**2) @ (w**2).sum(0)).sum(),
            "g2_x2": ((g**2).sum(1) * columns_square.sum(1)).sum(),
            "g2_x2_c": ((g**2).sum(1) * (columns_square @ c)).sum(),
            "x2_g2_d": (columns_square.sum(1) * ((g**2) @ d)).sum(),
        }
        for name, value in expected.items():
            self.assertAlmostEqual(row[name] / float(value), 1, delta=1e-4, msg=name)

    def test_training_mode_weights_and_gradients_stay(self):
        torch.manual_seed(0)
        module = Net().eval()
        expected = {name: value.clone() for name, value in module.state_dict().items()}
        tandem.sensitivity(module, [X, X], store=self.store, method="fisher")
        self.assertFalse(module.training)
        for name, value in module.state_dict().items():
            self.assertTrue(torch.equal(value, expected[name]), name)
        with self.assertRaisesRegex(tandem.UsageError, "no batches"):
            tandem.sensitivity(module, [], store=self.store, method="fisher")


class Zoo(Case):
    cluster = "8*v100@8 + 8*t4@8 net=100Gbit/s,5us"

    def test_the_limits_of_the_command_line(self):
        """A largest sensitivity and the least training time: the plan that `tandem allocate` makes."""
        import json

        def command(*words):
            words = [os.path.join(BUILD, "tandem"), *words, "--db", self.store, "--quiet"]
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout

        model, text = "gpt_tiny:width=8,heads=2,depth=1,length=8", os.path.join(self.folder, "text")
        with open(text, "w", encoding="ascii") as file:
            file.write("".join(f"line {k} of a text, {k * k % 97} and {k % 13}\n" for k in range(3000)))
        command("sensitivity", "--model", model, "--data", text, "--batch", "4", "--steps", "8", "--at", "0,50%",
                "--repetitions", "4")  # fmt: skip
        asked = ["allocate", "--model", model, "--batch", "16", "--cluster", "h100 net=10Gbit/s,5us", "--predict",
                 "--sensitivity", "sampled", "--json"]  # fmt: skip
        given = {"batch": 16, "predict": True, "method": "sampled", "store": self.store}
        plans = [tandem.allocate(model, "h100 net=10Gbit/s,5us", **given)]
        self.assertRegex(str(plans[0]), r"sensitivity \S+ % more samples to the same loss \(95 %: \S+ to \S+ %\); ")
        found = Estimate(2.0, 0.5, 8.0)  # as unit/test_correction has it
        self.assertAlmostEqual(math.log(found.prediction[1] / 2), 2.59300, places=4)
        self.assertEqual(found.extra_samples, "2 % more samples to the same loss (95 %: 0.1 to 30 %)")
        limit = plans[0].sensitivity_bound / 2  # percent
        for words, goal in ((["--max-sensitivity", f"{limit!r}%"], {"max_sensitivity": limit / 100}),
                            (["--minimize", "training-time"], {"minimize": "training-time"}),
                            (["--slowdown", "30%"], {"slowdown": 0.3})):  # fmt: skip
            printed = json.loads(command(*asked, *words))
            plan = tandem.allocate(model, "h100 net=10Gbit/s,5us", **given, **goal)
            self.assertEqual(round(plan.step * 1e9), printed["step_ns"])
            self.assertAlmostEqual(plan.sensitivity_bound, printed["sensitivity_bound"], places=9)
            for name in ("sensitivity", "sensitivity_low", "sensitivity_high"):
                self.assertAlmostEqual(getattr(plan, name), printed[name], places=9)
            plans.append(plan)
        self.assertTrue(0 <= plans[1].sensitivity_bound <= limit < plans[0].sensitivity_bound)
        self.assertGreaterEqual(plans[1].step, plans[0].step)

    def test_the_same_step_and_text_as_the_command_line(self):
        replayed = tandem.replay("resnet50", self.cluster, batch=32, predict=True, store=self.store)
        command = [
            os.path.join(BUILD, "tandem"),
            "replay",
            "--model",
            "resnet50",
            "--batch",
            "32",
            "--cluster",
            self.cluster,
            "--predict",
            "--db",
            self.store,
        ]
        import json

        printed = json.loads(
            subprocess.run(command + ["--json"], capture_output=True, text=True, check=True).stdout
        )
        self.assertEqual(round(replayed.step * 1e9), printed["step_ns"])
        for wrong in (
            ["--model", "resnet51"],
            ["--model", "resnet50", "--cluster", "8*v101"],
            ["--model", "resnet50", "--cluster", "t4", "--uniform", "int9"],
        ):
            given = dict(zip(wrong[::2], wrong[1::2]))
            printed = subprocess.run(
                [command[0], "replay", "--batch", "32", "--predict", *wrong]
                + ([] if "--cluster" in given else ["--cluster", "t4"]),
                capture_output=True,
                text=True,
            )
            with self.assertRaises(tandem.TandemError) as caught:
                tandem.replay(
                    given["--model"],
                    given.get("--cluster", "t4"),
                    given.get("--uniform"),
                    batch=32,
                    predict=True,
                )
            self.assertIn(str(caught.exception), printed.stderr)
            self.assertEqual(caught.exception.exit_code, printed.returncode)

    def test_advice(self):
        graph = tandem.capture(Net(), X)
        tandem.sensitivity(Net(), BATCHES, F.cross_entropy, store=self.store)
        options = {"store": self.store, "predict": True, "proof_work": 10_000_000}
        advice = tandem.advise(graph, "2*t4@2 net=100Gbit/s,5us", "2*v100@2", **options)
        self.assertEqual([one.role for one in advice.cases], ["current", "added", "combined", "subset"])
        self.assertEqual(
            [len(plan.classes) for plan in (advice.current, advice.added, advice.combined)], [1, 1, 2]
        )
        self.assertEqual(advice.best.rate, max(one.rate for one in advice.cases))
        self.assertEqual(advice.worth_it, advice.best.role != "current")
        alone = tandem.allocate(graph, "2*t4@2 + 2*v100@2 net=100Gbit/s,5us", **options)
        self.assertEqual(advice.combined.precision(3), alone.precision(3))
        self.assertIn("times as many samples", str(advice))
        self.assertTrue({(of.device, of.precision) for of in alone.ratios} >= {("t4", "fp16"), ("v100", "fp16")})
        for of in alone.ratios + advice.ratios:
            self.assertTrue(0 < of.low < of.ratio < of.high)
            self.assertEqual(of.to_measure != "", of.changed_at_low > 0 or of.changed_at_high > 0)


if __name__ == "__main__":
    unittest.main()
