"""What pyproject.toml cannot say: that `herdmesh.engine.librdkafka._native` is compiled, and how.

It is a plain shared library for ctypes, so neither Python's headers nor librdkafka's are needed: only a C compiler,
which is $CC, the machine's `cc`, or, where there is none, zig's (a package, which pip brings to an isolated build).
Without any, set-up ends with what to do.

The library calls nothing of Python's, so it is named for no Python (`_native.so`), and its wheel is for every Python 3
on one platform: `py3-none-<platform>`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

_ZIG = "ziglang>=0.15.2,<0.16"
"""The pinned one is in deploy/requirements-compiler.txt."""
_OPTIONS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


class BuildLibrary(build_ext):
    """One compiler call for each library."""

    def build_extension(self, ext: Extension) -> None:
        made = Path(self.get_ext_fullpath(ext.name))
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*_compiler(), *_OPTIONS, "-o", str(made), *ext.sources], check=True)

    def get_ext_filename(self, fullname: str) -> str:
        """Without the tag of a Python: `herdmesh/engine/_native.so`."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))


class PlatformWheel(bdist_wheel):
    """A wheel for every Python 3, on one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


def _compiler_here() -> list[str]:
    if named := os.environ.get("CC"):
        return shlex.split(named)
    found = shutil.which("cc")
    return [found] if found else []


def _compiler() -> list[str]:
    if here := _compiler_here():
        return here
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise SystemExit(
        "No C compiler for herdmesh.engine.librdkafka._native: install one (Debian and Ubuntu: apt install gcc "
        f"libc6-dev), name it in CC, or install the package {_ZIG} into this environment, and run this again."
    )


setup(
    ext_modules=[Extension("herdmesh.engine.librdkafka._native", ["src/herdmesh/engine/librdkafka/native.c"])],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
    setup_requires=[] if _compiler_here() else [_ZIG],
)
