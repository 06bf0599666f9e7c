"""The package itself: installing, and what is said where something is missing."""

import glob
import os
import subprocess
import sys
import unittest

from support import BUILD, ROOT, Case


class Package(Case):
    def test_pip_installs_it_without_network(self):
        environment = os.path.join(self.folder, "env")
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", environment],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            self.skipTest("no venv; apt-get install python3-venv python3-pip")
        python = os.path.join(environment, "bin", "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--no-index", "--quiet"]
        installed = subprocess.run(
            [*pip, os.path.join(ROOT, "python")],
            capture_output=True,
            text=True,
            env={**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"},
        )
        self.assertEqual(installed.returncode, 0, installed.stderr)
        code = (
            "import tandem; print(tandem.__file__)\n"
            "print(tandem.replay('mlp', 't4', batch=4, predict=True).step > 0)"
        )
        ran = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(ran.stdout.split()[1:], ["True"], ran.stderr)
        self.assertIn(environment, ran.stdout)

    def test_a_missing_library_says_what_to_do(self):
        code = "import tandem; tandem.replay('mlp', 't4', batch=4, predict=True)"
        printed = self.python(code, TANDEM_LIBRARY="/nonexistent").stderr
        self.assertRegex(
            printed,
            r"MissingError: libtandem.so.0 is not here: looked for /nonexistent/.*`make`.*TANDEM_LIBRARY",
        )
        self.assertEqual(self.python(code, TANDEM_LIBRARY=os.path.join(BUILD, "libtandem.so.0")).stderr, "")

    def test_an_older_library_says_so(self):
        code = "from tandem import _library; _library.bind('tandem_kernels', 'tandem_kernels_of_tomorrow')"
        printed = self.python(code).stderr
        self.assertRegex(printed, "MissingError: libtandem_kernels.so.0 has no tandem_kernels_of_tomorrow: it is older")

    def test_without_pytorch_plans_are_made_and_the_rest_names_the_package(self):
        code = (
            "import sys; sys.modules['torch'] = None; import tandem\n"
            "print(tandem.replay('mlp', 't4', batch=4, predict=True).step > 0)\n"
            "try: tandem.apply\nexcept tandem.MissingError as missing: print(missing)"
        )
        ran = self.python(code)
        self.assertEqual(ran.stderr, "")
        self.assertIn("True\n", ran.stdout)
        self.assertIn("apt-get install python3-torch libopenblas0", ran.stdout)

    def test_a_slow_blas_is_warned_of_with_the_package(self):
        code = (
            "import torch, tandem, warnings; warnings.simplefilter('always')\n"
            "for _ in range(2): tandem.apply(torch.nn.Linear(3, 3), 'int8')\n"
            "from tandem._blas import blas_file; print(blas_file())"
        )
        ran = self.python(code)
        is_reference = "/blas/libblas.so" in ran.stdout
        self.assertEqual(ran.stderr.count("apt-get install libopenblas0"), int(is_reference), ran.stderr)
        if is_reference:
            return
        folder = next(iter(glob.glob("/usr/lib/*/blas")), None)
        if folder is None:
            self.skipTest("no reference BLAS to be warned of; apt-get install libblas3")
        printed = self.python(code, LD_LIBRARY_PATH=folder).stderr
        self.assertEqual(printed.count("the reference BLAS"), 1, printed)
        self.assertIn("apt-get install libopenblas0", printed)

    @staticmethod
    def has_huge_pages():
        try:
            with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
                return "[never]" not in file.read()
        except OSError:
            return False

    def test_a_converted_process_asks_for_huge_pages(self):
        if not self.has_huge_pages():
            self.skipTest("this Linux has no transparent huge pages; transparent_hugepage/enabled says never")
        code = (
            "import torch, tandem; tandem.apply(torch.nn.Linear(3, 3), 'int8')\n"
            "here = False\n"
            "for line in open('/proc/self/smaps'):\n"
            "    if '-' in line.split()[0]: here = line.rstrip().endswith('[heap]')\n"
            "    if here and line.startswith('VmFlags:'): print('hg' in line.split())"
        )
        self.assertIn("True", self.python(code).stdout)
        self.assertNotIn("True", self.python(code, GLIBC_TUNABLES="glibc.malloc.arena_max=2").stdout)

    def test_weights_made_before_lie_in_huge_pages_too(self):
        code = (
            "import torch, tandem\n"
            "module = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(12)])\n"  # 12 MiB
            "before = [weight.data_ptr() for weight in module.parameters()]\n"
            "tandem.apply(module, 'int8')\n"
            "assert before == [weight.data_ptr() for weight in module.parameters()]\n"
            "places = [weight.data_ptr() for weight in module.parameters() if weight.dim() == 2]\n"
            "found = set()\n"
            "for line in open('/proc/self/smaps'):\n"
            "    if '-' in line.split()[0]: first, end = (int(one, 16) for one in line.split()[0].split('-'))\n"
            "    if line.startswith('VmFlags:') and 'hg' in line.split():\n"
            "        found |= {place for place in places if first <= place < end}\n"
            "print(len(found))"
        )
        if not self.has_huge_pages():
            self.skipTest("this Linux has no transparent huge pages; transparent_hugepage/enabled says never")
        self.assertGreater(int(self.python(code).stdout), 6)  # those at both ends share a page with others
        self.assertEqual(int(self.python(code, GLIBC_TUNABLES="glibc.malloc.arena_max=2").stdout), 0)

    def test_a_converted_process_keeps_the_memory_that_it_frees(self):
        # the heap grows by a block as long as holes are a few bytes too small for the next one: at most some
        # ten times, so the last 20 of 60 are looked at
        code = (
            "import resource, statistics, torch, tandem\n"
            "def faults():\n"
            "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
            "    torch.ones(10 << 20)\n"  # 40 MiB: 10240 pages
            "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
            "tandem.apply(torch.nn.Linear(3, 3), 'int8')\n"
            "print(int(statistics.median([faults() for _ in range(60)][40:])))"
        )
        own = {name: None for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"}
        self.assertLess(int(self.python(code, **own).stdout), 1000)
        # who sets the allocator has it so
        set_by_user = {**own, "MALLOC_MMAP_THRESHOLD_": "131072"}
        self.assertGreater(int(self.python(code, **set_by_user).stdout), 10000)

    def test_structs_are_those_of_the_headers(self):
        """Size and offsets of every struct that calls pass, from the C compiler."""
        import ctypes

        from tandem import _structs

        renamed = {"from_": "from"}
        lines, expected = [], []
        for struct in vars(_structs).values():
            if not (isinstance(struct, type) and hasattr(struct, "_fields_")):
                continue
            c = f"{'' if struct.__doc__ == 'tandem_graph' else 'struct '}{struct.__doc__}"
            for field, *_ in struct._fields_:
                lines.append(f'printf("%zu\\n", offsetof({c}, {renamed.get(field, field)}));')
                expected.append((f"{c}.{field}", getattr(struct, field).offset))
            lines.append(f'printf("%zu\\n", sizeof({c}));')
            expected.append((f"{c} size", ctypes.sizeof(struct)))
        self.assertGreater(len(expected), 500)
        headers = ("tandem.h", "trial.h", "kernels.h", "cuda_kernels.h", "advanced/predictor.h",
                   "advanced/probe.h", "advanced/torch_trace.h")  # fmt: skip
        source = (
            "".join(f"#include <tandem/{one}>\n" for one in headers) + "#include <stdio.h>\nint main(void) {"
        )
        path = os.path.join(self.folder, "structs")
        with open(path + ".c", "w", encoding="ascii") as file:
            file.write(source + "\n".join(lines) + "}")
        try:
            subprocess.run(["gcc", "-I", os.path.join(ROOT, "include"), "-o", path, path + ".c"], check=True)
        except FileNotFoundError:
            self.skipTest("no C compiler; apt-get install gcc")
        printed = subprocess.run([path], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual([(name, int(found)) for (name, _), found in zip(expected, printed)], expected)

    def test_every_name_is_there_and_documented(self):
        code = (
            "import tandem\n"
            "for name in tandem.__all__: assert (getattr(tandem, name).__doc__ or '').strip(), name\n"
        )
        self.assertEqual(self.python(code).stderr, "")


if __name__ == "__main__":
    unittest.main()
