"""capture and apply: modules of all kinds, and what is refused."""

import contextlib
import copy
import json
import os
import pickle
import unittest
import warnings
from unittest import mock

from support import Case
import torch
import torch.nn.functional as F

import tandem
import tandem._apply


class Odd(torch.nn.Module):
    """A branch in Python, a shared weight, an operation in place, two inputs, a head without a module."""

    def __init__(self):
        super().__init__()
        self.image = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.mix = torch.nn.Linear(16, 16)
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Parameter(torch.randn(16, 10))
        self.other = torch.nn.Linear(16, 10)

    def forward(self, image, words, other=False):
        seen = F.relu_(self.image(image)).mean((2, 3))
        words = self.mix(self.mix(words))
        words = self.attention(words, words, words)[0]
        words[:, 0, :4] += seen
        words = self.norm(words.mean(1))
        return self.other(words) if other else words @ self.head


def odd_inputs(batch=3):
    return torch.randn(batch, 1, 6, 6), torch.randn(batch, 5, 16)


class Seen(torch.overrides.TorchFunctionMode):
    """Notes what is called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Masked(torch.nn.Module):
    """Attention with and without a mask, after a norm; then a product in a mode of the module's own."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.inside = contextlib.nullcontext()

    def forward(self, x, mask):
        x = self.norm(x)
        x = self.attention(x, x, x, attn_mask=mask)[0]
        with self.inside:
            return torch.relu(x @ x.transpose(1, 2)).sum(0)


class Small(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, width, 3, padding=1)
        self.fc = torch.nn.Linear(width, 4)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).mean((2, 3)))


class Capture(Case):
    def test_an_odd_module(self):
        module = Odd()
        buffers = {name: value.clone() for name, value in module.named_buffers()}
        graph = tandem.capture(module, odd_inputs())
        names = [call.name for call in graph.adjustable]
        self.assertEqual(
            names,
            [
                "image",
                "mix",
                "mix_1",
                "attention.linear",
                "attention.matmul",
                "attention.matmul_1",
                "attention.linear_1",
                "linear",
            ],
        )
        # the second use of a weight owns nothing; weights of what was not called are not in the step
        unused = sum(parameter.numel() for parameter in module.other.parameters())
        self.assertEqual(graph.n_weight, sum(parameter.numel() for parameter in module.parameters()) - unused)
        self.assertEqual(graph.find("mix_1").kind, "matmul")
        self.assertEqual(graph.find("linear").parameters, ("head",))
        for name, value in module.named_buffers():
            self.assertTrue(torch.equal(value, buffers[name]), name)

    def test_the_hash_is_of_the_module_and_not_of_the_batch(self):
        torch.manual_seed(0)
        hashes = {tandem.capture(Odd(), odd_inputs(batch)).hash for batch in (2, 3, 8)}
        self.assertEqual(len(hashes), 1)
        self.assertNotEqual(
            tandem.capture(Small(8), torch.randn(2, 3, 8, 8)).hash,
            tandem.capture(Small(9), torch.randn(2, 3, 8, 8)).hash,
        )

    def test_a_transformer_and_long_names(self):
        module = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        inside = module
        for _ in range(6):
            outer = torch.nn.Sequential()
            outer.add_module("a_long_name", inside)
            inside = outer
        graph = tandem.capture(inside, torch.randn(2, 5, 16))
        self.assertEqual(graph.n_weight, sum(parameter.numel() for parameter in module.parameters()))
        self.assertEqual(len({call.operator for call in graph.calls}), len(graph.calls))
        self.assertEqual(len(graph.hash), 16)

    def test_files(self):
        graph = tandem.capture(Small(), torch.randn(2, 3, 8, 8))
        path = os.path.join(self.folder, "graph.json")
        graph.save(path)
        self.assertEqual(tandem.Graph.load(path), graph)
        with open(path, "w", encoding="ascii") as file:
            file.write('{"schema": "tandem.recording/1", "calls": 3}')
        with self.assertRaisesRegex(tandem.MalformedError, "graph.json"):
            tandem.Graph.load(path)
        for member, value, reason in (
            ("kernel", "3", r"calls\[0\].kernel: must be a whole number"),
            ("input", [2, 8, 8, 3, 1], r"calls\[0\].input: must be an array of at most 4 sizes"),
            ("stride", -1, r"calls\[0\].stride: must be"),
            ("operator", 5, r"calls\[0\].operator: must be"),
        ):
            wrong = graph.to_json()
            wrong["calls"][0][member] = value
            with open(path, "w", encoding="ascii") as file:
                json.dump(wrong, file)
            with self.assertRaisesRegex(tandem.MalformedError, f"graph.json', {reason}"):
                tandem.Graph.load(path)

    def test_what_cannot_be_captured(self):
        with self.assertRaisesRegex(tandem.MalformedError, "ReLU called no linear layer"):
            tandem.capture(torch.nn.ReLU(), torch.randn(2, 3))
        with self.assertRaisesRegex(tandem.UsageError, "batch=N"):
            tandem.capture(torch.nn.Identity(), 3)
        with self.assertRaisesRegex(tandem.UsageError, "a torch.nn.Module; got 'resnet50', a str"):
            tandem.capture("resnet50", torch.randn(2, 3))
        with self.assertRaisesRegex(tandem.UsageError, "no call 'nosuch'; its adjustable ones are conv, fc"):
            tandem.capture(Small(), torch.randn(2, 3, 8, 8)).find("nosuch")


class Apply(Case):
    def losses(self, module, inputs, target, steps=8):
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
        found = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(module(*inputs), target)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    def test_training_follows_fp32(self):
        torch.manual_seed(0)
        base, inputs, target = Odd(), odd_inputs(8), torch.randint(0, 10, (8,))
        base.other.requires_grad_(False)
        expected = self.losses(copy.deepcopy(base), inputs, target)
        self.assertLess(expected[-1], 0.7 * expected[0])
        for precision in ("int8", "int8_full", "bf16"):
            module = tandem.apply(copy.deepcopy(base), precision)
            found = self.losses(module, inputs, target)
            self.assertNotEqual(found, expected)
            for one, right in zip(found, expected):
                self.assertAlmostEqual(one, right, delta=0.05 * expected[0])

    def test_precisions_by_name_change_these_calls_alone(self):
        torch.manual_seed(0)
        module, x = Small(), torch.randn(2, 3, 8, 8)
        inside = {}
        module.fc.register_forward_hook(lambda m, i, o: inside.update(fc=i[0]))
        expected, before = module(x), inside["fc"]
        tandem.apply(module, {"fc": "int8_full"})
        found = module(x)
        self.assertTrue(torch.equal(inside["fc"], before))  # the convolution stayed as it was
        self.assertFalse(torch.equal(found, expected))
        self.assertEqual(tandem.applied(module), {"fc": "int8_full"})
        tandem.remove(module)
        self.assertTrue(torch.equal(module(x), expected))

    def test_state_copies_and_pickles(self):
        torch.manual_seed(0)
        module, x = Small(), torch.randn(2, 3, 8, 8)
        keys = list(module.state_dict())
        tandem.apply(module, "int8_full")
        self.assertEqual(list(module.state_dict()), keys)
        self.assertEqual([name for name, _ in module.named_modules()], ["", "conv", "fc"])
        copied, pickled = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
        expected = module(x)
        for other in (copied, pickled):
            with torch.no_grad():
                self.assertTrue(torch.equal(other(x), expected))
                other.fc.weight.zero_()
                self.assertFalse(torch.equal(other(x), expected))  # its own weights, not those of the first
        Small().load_state_dict(module.state_dict())

    def test_operands_of_all_kinds(self):
        for precision in ("int8", "int8_full", "bf16"):
            with self.subTest(precision):
                self.check_operands(precision)

    def check_operands(self, precision):
        torch.manual_seed(0)
        module = tandem.apply(Small(), precision)
        x = torch.randn(2, 3, 8, 8)
        expected = copy.deepcopy(module)(x)
        strided = torch.randn(2, 8, 8, 6)[..., ::2].permute(0, 3, 1, 2)
        strided.copy_(x)
        self.assertTrue(torch.equal(copy.deepcopy(module)(strided), expected))
        last = x.contiguous(memory_format=torch.channels_last)
        self.assertTrue(torch.equal(copy.deepcopy(module)(last), expected))
        for parameter in module.conv.parameters():
            parameter.requires_grad_(False)
        module(x).sum().backward()  # neither the input nor the convolution needs a gradient
        self.assertIsNone(module.conv.weight.grad)
        self.assertIsNotNone(module.fc.weight.grad)
        with torch.no_grad():
            self.assertFalse(module(x).requires_grad)
        self.assertEqual(module(x[:1]).shape, (1, 4))

    def test_convolutions_keep_channels_last_and_their_results_can_be_viewed(self):
        class Viewed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.fc = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Linear(8 * 16, 4)

            def forward(self, x):
                y = self.conv(x)
                self.layout = y.is_contiguous(memory_format=torch.channels_last)
                rows = y.view(y.shape[0], -1)  # of NCHW; channels_last alone would refuse it
                rows += 1
                return self.fc(rows) + y.mean()  # which sees the 1

        torch.manual_seed(0)
        module, x = Viewed(), torch.randn(2, 3, 4, 4)
        expected = module(x)
        grads = torch.autograd.grad(expected.sum(), list(module.parameters()))
        tandem.apply(module, {"conv": "int8_full"})
        found = module(x)
        self.assertTrue(module.layout)
        self.assertTrue(module.conv.weight.is_contiguous(memory_format=torch.channels_last))
        for one, right in zip(torch.autograd.grad(found.sum(), list(module.parameters())), grads):
            self.assertLess((one - right).norm() / right.norm(), 0.05)
        self.assertLess((found - expected).norm() / expected.norm(), 0.05)
        tandem.remove(module)
        self.assertTrue(module.conv.weight.is_contiguous())
        self.assertTrue(torch.equal(module(x), expected))

    def test_results_can_be_changed_in_place(self):
        layers = [(torch.nn.Conv2d(16, 32, 3, padding=1), (2, 16, size, size)) for size in (2, 8)]
        layers.append((torch.nn.Linear(64, 64), (2, 8, 64)))
        for layer, shape in layers:
            for precision in ("int8", "int8_full", "bf16"):
                with self.subTest(shape=shape, precision=precision):
                    y = tandem.apply(layer, precision)(torch.randn(shape))
                    y[:, 0] += 1
                    F.relu_(y).sum().backward()

    def test_what_apply_refuses(self):
        module = tandem.apply(Small(), "int8_full")
        with self.assertRaisesRegex(tandem.MissingError, "layer 'conv': its input is torch.float64"):
            module(torch.randn(2, 3, 8, 8).double())
        with self.assertRaisesRegex(tandem.MissingError, "layer 'conv': its input is on meta"):
            module(torch.randn(2, 3, 8, 8, device="meta"))
        with self.assertRaisesRegex(tandem.InfeasibleError, "layer 'conv'"):
            module(torch.full((2, 3, 8, 8), float("nan")))
        with self.assertRaisesRegex(
            tandem.MissingError, "'fc' in fp8: modules run in fp32, bf16, int8, int8_full"
        ):
            tandem.apply(module, {"fc": "fp8"})
        with self.assertRaisesRegex(tandem.UsageError, "no precision 'bf61'. Did you mean 'bf16'"):
            tandem.apply(module, "bf61")
        for wrong in (None, 3, {0: "bf16"}):
            with self.assertRaisesRegex(tandem.UsageError, "precisions by the names of calls.*; got"):
                tandem.apply(module, wrong)
        with self.assertRaisesRegex(tandem.UsageError, "a torch.nn.Module; got 'resnet50', a str"):
            tandem.apply("resnet50", "bf16")
        with self.assertRaisesRegex(FileNotFoundError, "'other/plan' cannot be read"):
            tandem.apply(module, "other/plan")
        module(torch.randn(2, 3, 8, 8))  # after errors it still runs

    def test_a_name_that_is_no_call_is_warned_of_once(self):
        module = tandem.apply(Small(), {"fc": "int8_full", "head": "int8_full"})
        with self.assertWarnsRegex(UserWarning, "a precision for 'head', which the module did not call"):
            module(torch.randn(2, 3, 8, 8))
        tandem.apply(module, {"fc": "int8_full"})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            module(torch.randn(2, 3, 8, 8))

    def plan_for(self, module, inputs, precision="int8_full"):
        graph = tandem.capture(module, inputs)
        one = tandem.PlanClass("torch:x", 1, graph.batch, {call.name: precision for call in graph.adjustable})
        return tandem.Plan("test", graph.model, "torch:x", [one], graph.hash, graph=graph)

    def test_a_changed_module_is_refused_by_the_layers_name(self):
        plan = self.plan_for(Small(), torch.randn(2, 3, 8, 8))
        tandem.apply(Small(), plan)(torch.randn(7, 3, 8, 8))  # any batch
        with self.assertRaisesRegex(
            tandem.WrongModelError, "layer 'conv' was changed.*'conv.weight' of 9x3x3x3.*captured of 8x3x3x3"
        ):
            tandem.apply(Small(9), plan)
        changed = Small()
        changed.extra = torch.nn.Linear(2, 2)
        with self.assertRaisesRegex(tandem.WrongModelError, "layer 'extra' was changed"):
            tandem.apply(changed, plan)
        strided = Small()
        strided.conv.stride = (2, 2)
        with self.assertRaisesRegex(tandem.WrongModelError, "layer 'conv' reads.*another shape"):
            tandem.apply(strided, plan)(torch.randn(2, 3, 8, 8))
        with self.assertRaisesRegex(tandem.WrongModelError, "layer 'conv' reads 2x3x9x9"):
            tandem.apply(Small(), plan)(torch.randn(2, 3, 9, 9))
        with self.assertRaisesRegex(tandem.WrongModelError, "no rank 3"):
            tandem.apply(Small(), plan, rank=3)

    def test_all_ranks_of_a_plan_have_the_same_layout(self):
        """DistributedDataParallel refuses ranks whose weights differ in strides."""
        graph = tandem.capture(Small(), torch.randn(2, 3, 8, 8))
        for converted in ("int8_full", "bf16"):
            classes = [
                tandem.PlanClass(f"torch:{precision}", 1, 2, {"conv": precision, "fc": "fp32"})
                for precision in ("fp32", converted)
            ]
            plan = tandem.Plan(
                "test", graph.model, f"torch:fp32 + torch:{converted}", classes, graph.hash, graph=graph
            )
            strides = {tandem.apply(Small(), plan, rank=rank).conv.weight.stride() for rank in (0, 1)}
            self.assertEqual(strides, {(27, 1, 9, 3)}, converted)

    def test_another_branch_runs_in_fp32_with_a_warning(self):
        module = Odd()
        tandem.apply(module, self.plan_for(module, odd_inputs()))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            module(*odd_inputs(), other=True)
            module(*odd_inputs(), other=True)
        self.assertEqual(len([one for one in caught if "'other'" in str(one.message)]), 1)

    def products_of(self, module, *inputs):
        """How many products a run converts."""
        with mock.patch("tandem._apply.run_product", wraps=tandem._apply.run_product) as run:
            module(*inputs)
        return run.call_count

    def test_every_run_converts_every_product(self):
        """Also attention, which is followed otherwise after its first run, and what is after a norm."""
        module, inputs = tandem.apply(Odd(), "int8_full"), odd_inputs()
        self.assertEqual([self.products_of(module, *inputs) for _ in range(3)], [8, 8, 8])
        masked = tandem.apply(Masked(), "int8_full")
        x, mask = torch.randn(2, 5, 16), torch.zeros(5, 5)
        self.assertEqual([self.products_of(masked, x, one) for one in (None, mask, None)], [5, 5, 5])
        with self.assertRaisesRegex(RuntimeError, "normalized_shape"):
            masked(x[..., :8], None)  # fails in a silent submodule
        self.assertEqual(self.products_of(masked, x, mask), 5)

    def test_modules_of_pytorch_that_need_no_mode(self):
        """Their products are converted in training and in evaluation, frozen, with hooks and copied."""
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        module = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(16, 4))
        encoder, x = module[0], torch.randn(2, 5, 16)
        n = 9 if hasattr(F, "scaled_dot_product_attention") else 13  # which is one call since PyTorch 2.0
        tandem.apply(module, "int8_full")
        self.assertEqual([self.products_of(module, x) for _ in range(3)], [n, n, n])
        for parameter in encoder.layers[0].parameters():
            parameter.requires_grad_(False)
        encoder.layers[0].eval()  # in a container that is in training
        self.assertEqual(self.products_of(module, x), n)
        module.eval()
        with torch.no_grad():
            self.assertEqual(self.products_of(module, x), n)
        copied = copy.deepcopy(module).train()
        self.assertIsNot(copied[1].forward.module, module[1])
        self.assertEqual(self.products_of(copied, x), n)
        names = []
        with mock.patch.object(tandem._apply._Conversion, "rounds_of", lambda self, name: names.append(name)):
            with self.assertRaises(AttributeError):
                copied(x)
        self.assertEqual(names, ["0.layers.0.self_attn.linear"])
        tandem.remove(module)
        self.assertFalse([name for name, child in module.named_modules() if "forward" in child.__dict__])
        for one in (module[1], encoder.layers[0].linear1):
            one.register_forward_hook(lambda module, inputs, output: output @ torch.ones(output.shape[-1], 3))
        tandem.apply(module[1], "int8_full")
        self.assertEqual(self.products_of(module[1], x), 1)  # hooks of the module itself run outside
        tandem.remove(module[1])
        hooked = tandem.apply(torch.nn.Sequential(torch.nn.Sequential(module[1])), "int8_full")
        self.assertEqual(self.products_of(hooked, x), 2)

    def test_other_modes_see_what_they_saw(self):
        """Entered before the converted module runs, or while it does: each sees the same calls."""
        torch.manual_seed(0)
        module, x = Masked(), torch.randn(2, 5, 16)
        module.inside = Seen()
        with Seen() as outside:
            module(x, None)
        expected = list(module.inside.names)
        tandem.apply(module, "int8_full")
        for outer in (contextlib.nullcontext(), contextlib.nullcontext(), outside):
            module.inside.names, outside.names = [], []
            with outer:
                self.assertEqual(self.products_of(module, x, None), 5)
            self.assertEqual(module.inside.names, expected)
        self.assertIn("layer_norm", outside.names)
        self.assertEqual(torch.overrides._get_current_function_mode_stack(), [])
        self.assertTrue(torch.equal(x + 1, 1 + x))

    def test_a_forward_of_its_own_is_what_is_captured_estimated_and_profiled(self):
        """Also while the module is converted, which it is again afterwards."""
        module, x = Small(), torch.randn(6, 3, 8, 8)
        plain = tandem.capture(module, x)
        inner = module.forward
        module.forward = lambda x: inner(torch.tanh(x))
        graph = tandem.capture(module, x)
        self.assertEqual(len(graph.calls), len(plain.calls) + 1)
        tandem.apply(module, "int8_full")
        expected = module(x)
        self.assertEqual(tandem.capture(module, x), graph)
        seen = []
        following = torch.tanh

        def noticed(x):
            seen.append(x)
            return following(x)

        with mock.patch("torch.tanh", noticed):
            batches = [torch.randn(6, 3, 8, 8) for _ in range(8)]
            tandem.sensitivity(module, batches, store=self.store)
            self.assertTrue(seen)
            seen.clear()
            tandem.profile(module, x, device="torch:own", store=self.store, steps=2, precisions=["fp32", "bf16"])
            self.assertTrue(seen)
        self.assertEqual(tandem.applied(module), {"*": "int8_full"})
        self.assertLess((module(x) - expected).norm() / expected.norm(), 0.05)
        self.assertEqual(self.products_of(module, x), 2)

    def test_an_empty_batch_keeps_the_names_of_calls_after_it(self):
        class Twice(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(8, 8)

            def forward(self, x):
                return self.fc(x[:0]), self.fc(x)

        module = tandem.apply(Twice(), {"fc": "int8_full", "fc_1": "fp32"})
        self.assertEqual(self.products_of(module, torch.randn(3, 8)), 0)
        tandem.apply(module, {"fc": "fp32", "fc_1": "int8_full"})
        self.assertEqual(self.products_of(module, torch.randn(3, 8)), 1)

    def test_a_part_that_fails_leaves_the_names_of_others(self):
        class Caught(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Sequential(torch.nn.Linear(8, 8)), torch.nn.Linear(8, 8)

            def forward(self, x):
                try:
                    self.first(x[:, :4])
                except RuntimeError:
                    pass
                return self.second(x) @ torch.ones(8, 8)

        for hooked in (False, True):
            module = Caught()
            if hooked:
                module.first.register_forward_hook(lambda *_: None)
            tandem.apply(module, {"second": "int8_full"})
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(self.products_of(module, torch.randn(3, 8)), 1)

    def test_torchscript_inside_is_reported(self):
        module = torch.nn.Sequential(torch.jit.script(torch.nn.Linear(8, 8)), torch.nn.Linear(8, 8))
        with self.assertWarnsRegex(UserWarning, "layers '0' are TorchScript"):
            tandem.apply(module, "int8_full")
        self.assertEqual(self.products_of(module, torch.randn(3, 8)), 1)

    def test_weights_in_memory_that_others_share_stay_there(self):
        module, flat = torch.nn.Conv2d(3, 4, 3), torch.zeros(200)
        flat[:108] = module.weight.detach().reshape(-1)
        module.weight.data = flat[:108].view(4, 3, 3, 3)
        x = torch.randn(2, 3, 5, 5)
        tandem.apply(module, "int8_full")
        before = module(x)
        flat.mul_(2)
        self.assertLess((module(x) - 2 * before).norm() / before.norm(), 0.3)

    def test_a_fork_after_import(self):
        module, x = tandem.apply(torch.nn.Linear(600, 600), "int8_full"), torch.randn(300, 600)
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            module(x)
            child = os.fork()
            if child == 0:
                try:
                    torch.set_num_threads(2)
                    module(x)
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            torch.set_num_threads(before)


if __name__ == "__main__":
    unittest.main()
