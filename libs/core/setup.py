"""What pyproject.toml cannot say: that `herdmesh.engine._native` is compiled, and how.

It is a plain shared library for ctypes, so neither Python's headers nor librdkafka's are needed: only a C compiler,
which is $CC, the machine's `cc`, or, where there is none, zig's (the package `ziglang`, if it is installed). Without
any, set-up ends with what to do; nothing works less than before where the library is missing, only slower.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

_OPTIONS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


class BuildLibrary(build_ext):
    """One compiler call for each."""

    def build_extension(self, ext: Extension) -> None:
        made = Path(self.get_ext_fullpath(ext.name))
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*_compiler(), *_OPTIONS, "-o", str(made), *ext.sources], check=True)


def _compiler() -> list[str]:
    if named := os.environ.get("CC"):
        return shlex.split(named)
    if found := shutil.which("cc"):
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise SystemExit(
        "No C compiler for herdmesh.engine._native: install one (Debian and Ubuntu: apt install gcc libc6-dev), name "
        "it in CC, or install the package ziglang into this environment, and run this again."
    )


setup(
    ext_modules=[Extension("herdmesh.engine._native", ["src/herdmesh/engine/native.c"])],
    cmdclass={"build_ext": BuildLibrary},
)
