"""The package itself: installing, and what is said where something is missing."""

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
        told = self.python(code, TANDEM_LIBRARY="/nonexistent").stderr
        self.assertRegex(
            told,
            r"MissingError: libtandem.so.0 is not here: looked for /nonexistent/.*`make`.*TANDEM_LIBRARY",
        )
        self.assertEqual(self.python(code, TANDEM_LIBRARY=os.path.join(BUILD, "libtandem.so.0")).stderr, "")

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

    def test_every_name_is_there_and_documented(self):
        code = (
            "import tandem\n"
            "for name in tandem.__all__: assert (getattr(tandem, name).__doc__ or '').strip(), name\n"
        )
        self.assertEqual(self.python(code).stderr, "")


if __name__ == "__main__":
    unittest.main()
