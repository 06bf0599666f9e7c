"""The examples of docs/pytorch.md, as they are there."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

from support import BUILD, ROOT, Case


def example(name):
    with open(os.path.join(ROOT, "docs", "pytorch.md"), encoding="utf-8") as file:
        return re.search(rf"```python\n(# {name}: .*?)```", file.read(), re.S).group(1)


def missing_packages(code):
    """The packages that an example imports and this Python lacks."""
    lines = re.findall(r"^(?:import|from) (.*?)(?: import .*)?$", code, re.M)
    names = {one.split(" as ")[0].strip().partition(".")[0] for line in lines for one in line.split(",")}
    return sorted(name for name in names if name != "tandem" and importlib.util.find_spec(name) is None)


class Examples(Case):
    def run_example(self, name):
        path = os.path.join(self.folder, name)
        code = example(name)
        for package in missing_packages(code):
            reason = f"this Python has no {package}; apt-get install python3-{package}"
            print(f"\nSKIP: the Python package, {name} of docs/pytorch.md: {reason}", flush=True)
            self.skipTest(reason)
        with open(path, "w", encoding="utf-8") as file:
            file.write(code)
        variables = {
            **os.environ,
            "PYTHONPATH": os.path.join(ROOT, "python"),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": self.folder,
        }
        ran = subprocess.run(
            [sys.executable, path], cwd=self.folder, env=variables, capture_output=True, text=True
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout, code

    def test_two_different_ranks(self):
        printed, code = self.run_example("ddp.py")
        self.assertLessEqual(len(code.splitlines()), 40)
        self.assertIn("plan of Sequential on torch:new", printed)
        losses = [float(found) for found in re.findall(r"rank \d: loss ([\d.]+)", printed)]
        self.assertEqual(len(losses), 2)
        self.assertLess(max(losses), 2.2)  # ln 10 = 2.30 before

    def test_memory(self):
        printed, code = self.run_example("memory.py")
        self.assertLessEqual(len(code.splitlines()), 40)
        self.assertEqual(len(re.findall(r"^batch \d+, \w+: \d+ MiB$", printed, re.M)), 6)
        self.assertRegex(printed, r"8 x t4, batch 256: .* memory \d+ MiB")

    def test_what_if(self):
        printed, code = self.run_example("whatif.py")
        self.assertLessEqual(len(code.splitlines()), 40)
        self.assertIn("21 with a precision", printed)
        self.assertEqual(printed.count("times as many samples a second"), 3)
        self.assertRegex(printed, r"all devices [\d.]+ times as many samples/s of goodput")

    def test_a_saved_graph_on_the_command_line(self):
        self.run_example("save.py")
        with open(os.path.join(ROOT, "docs", "pytorch.md"), encoding="utf-8") as file:
            commands = re.search(r"    python3 save.py\n((?:    tandem .*\n)+)", file.read()).group(1)
        path = {"PATH": f"{BUILD}:{os.environ['PATH']}"}
        ran = subprocess.run(
            ["bash", "-ec", commands], cwd=self.folder, env=path, capture_output=True, text=True
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("own.json, uniform fp32, on 8*t4@8 batch=8", ran.stdout)
        code = (
            "import tandem\n"
            "print(tandem.Plan.load('plan.json').n_rank, tandem.Plan.load('plan.json').classes[1].device)"
        )
        found = self.python(code)
        self.assertEqual(found.stdout.split(), ["12", "v100"], found.stderr)

    def test_a_model_of_your_own(self):
        printed, _ = self.run_example("own.py")
        self.assertIn("allocated plan of Own on torch:rank0", printed)
        self.assertRegex(printed, r"mix_1 +matmul")
        self.assertLess(float(re.search(r"loss ([\d.]+)", printed).group(1)), 2.2)


if __name__ == "__main__":
    unittest.main()
