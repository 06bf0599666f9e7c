"""Copies of the working tree, in which lines are broken; a build of one counts which lines run."""
import hashlib
import os
import re
import shlex
import shutil
import subprocess


# Variables of an outer make, or of scripts/check.sh, that would change how a copy is built.
NOT_INHERITED = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "WERROR", "SAN")


class BuildFailed(Exception):
    """A command of the build failed; its text is the end of what it printed."""


def tracked_files(root):
    """Files of the working tree that git knows, in order; of a tree without git, all files but build/."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=False)
    if listed.returncode == 0 and os.path.exists(os.path.join(root, ".git")):
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    else:
        names = [os.path.relpath(os.path.join(folder, name), root) for folder, _, files in os.walk(root) for name in files]
    return sorted(set(name for name in names if not name.startswith("build/") and os.path.isfile(os.path.join(root, name))))


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def build_environment():
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}


def hash_of(root, names):
    digest = hashlib.sha256()
    for name in names:
        content = read_bytes(os.path.join(root, name))
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


class Tree:
    """A copy of the working tree at `path`, built by make with `variables`."""

    def __init__(self, root, path, variables, targets):
        self.root, self.path, self.variables, self.targets = root, path, variables, targets
        self.links = None

    def at(self, name):
        return os.path.join(self.path, name)

    def make(self, *targets, jobs=1):
        done = subprocess.run(["make", "--no-print-directory", f"-j{jobs}", *self.variables, *targets], cwd=self.path,
                              env=build_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise BuildFailed(done.stdout[-2000:].decode(errors="replace"))

    def synchronise(self):
        """Makes the copy as the working tree is; what does not differ keeps its time."""
        os.makedirs(self.path, exist_ok=True)
        names = tracked_files(self.root)
        for name in names:
            source, copy = os.path.join(self.root, name), self.at(name)
            if os.path.isfile(copy) and not os.path.islink(copy) and read_bytes(copy) == read_bytes(source):
                continue
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copyfile(source, copy)
            shutil.copymode(source, copy)
        for name in set(tracked_files(self.path)) - set(names):
            os.remove(self.at(name))

    def build(self, jobs):
        self.synchronise()
        self.make(*self.targets, jobs=jobs)

    def objects_of(self):
        """For each source the objects that are made of it, by the .d files beside these."""
        objects = {}
        for folder, _, files in os.walk(self.at("build/obj")):
            for name in sorted(files):
                if not name.endswith(".d"):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    parts = file.read().replace("\\\n", " ").split(None, 2)
                if len(parts) > 1 and parts[0].endswith(".o:"):
                    objects.setdefault(parts[1], []).append(parts[0][:-1])
        return objects

    def link_commands(self):
        """For each test program that make compiles and links in one command: that command."""
        shown = subprocess.run(["make", "-nB", "--no-print-directory", *self.variables, *self.targets], cwd=self.path,
                               env=build_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                               check=True).stdout.decode(errors="replace")
        links = {}
        for line in re.sub(r"\\\n\s*", " ", shown).split("\n"):
            found = re.search(r" -o build/tests/(\S+) tests/(\S+)\.c ", line)
            if found and found.group(1) == found.group(2):
                links[found.group(1)] = line
        return links

    def relink(self, program):
        """Links a test program with the objects as they are, as another file than make's, which stays whole; returns its path."""
        if self.links is None:
            self.links = self.link_commands()
        ours, made = f"build/tests/{program}.broken", f"build/tests/{program}"
        command = self.links.get(program)
        if command is None:
            self.make(made)
            shutil.copy2(self.at(made), self.at(ours))
            return ours
        source, compiled = f"tests/{program}.c", f"{ours}.o"
        head, tail = command.split(f" -o {made} {source} ")
        if not os.path.exists(self.at(compiled)) or os.path.getmtime(self.at(compiled)) < os.path.getmtime(self.at(made)):
            self.shell(f"{head.replace(' -MMD -MP', '')} -c -o {compiled} {source}")
        self.shell(f"{head.replace(' -MMD -MP', '')} -o {ours} {compiled} {tail}")
        return ours

    def shell(self, command):
        done = subprocess.run(["sh", "-c", command], cwd=self.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise BuildFailed(f"{shlex.quote(command[:200])}: {done.stdout[-2000:].decode(errors='replace')}")
