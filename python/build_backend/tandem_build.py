"""A build backend of PEP 517 for pure Python, so that `pip install` downloads no other one."""

import base64
import hashlib
import os
import re
import tarfile
import zipfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _version():
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        return re.search(r'^version = "(.*)"$', file.read(), re.M).group(1)


def _metadata():
    return f"Metadata-Version: 2.1\nName: tandem\nVersion: {_version()}\nRequires-Python: >=3.9\n"


def _write_wheel(folder, sources):
    """A wheel of {name in the archive: bytes}; returns the file's name."""
    info = f"tandem-{_version()}.dist-info"
    files = dict(sources)
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: tandem_build\nRoot-Is-Purelib: true\n" b"Tag: py3-none-any\n"
    )
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"tandem-{_version()}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def _package():
    package = os.path.join(HERE, "tandem")
    for name in sorted(os.listdir(package)):
        if name.endswith((".py", ".typed")):
            with open(os.path.join(package, name), "rb") as file:
                yield f"tandem/{name}", file.read()


def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def get_requires_for_build_editable(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    # The checkout's build folder, so that an installed package finds the libraries there.
    build = os.path.join(os.path.dirname(HERE), "build")
    return _write_wheel(
        wheel_directory, {**dict(_package()), "tandem/_checkout.py": f"BUILD = {build!r}\n".encode()}
    )


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, {"tandem.pth": (HERE + "\n").encode()})


def build_sdist(sdist_directory, config_settings=None):
    name = f"tandem-{_version()}"
    with tarfile.open(os.path.join(sdist_directory, name + ".tar.gz"), "w:gz") as archive:
        for part in ("pyproject.toml", "README.md", "build_backend", "tandem"):
            archive.add(os.path.join(HERE, part), f"{name}/{part}")
    return name + ".tar.gz"
