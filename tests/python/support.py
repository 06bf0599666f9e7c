"""What the tests of the Python package share."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("TANDEM_BUILD", "build"))
sys.path.insert(0, os.path.join(ROOT, "python"))
os.environ.setdefault("TANDEM_LIBRARY", BUILD)


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.store = os.path.join(self.folder, "tandem.db")

    def python(self, code, *arguments, **environment):
        """The result of a Python of its own; `environment` replaces variables, None removes them."""
        variables = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), **environment}
        variables = {name: value for name, value in variables.items() if value is not None}
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
