"""Command of `make dist-check`: the wheels of `dist/`, installed into an empty environment of each Python and used
there, outside of the checkout.

Afterwards uv and pipx install them with the last Python. Owns the environments. `scenario` owns the steps in one. On
Linux as root each scenario has a /tmp of its own (a mount namespace), so that it can be seen to end empty; elsewhere
TMPDIR and the JVMs' temporary folder are one of the test's.

    python -m tests.install                                     every Python from 3.11 to 3.13, in PATH or of pyenv
    python -m tests.install --python /path/to/python3.13        these alone; may be repeated
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.dist import ROOT, project_file
from tests.install import pythons

_OWN_TMP = (
    "unshare",
    "--mount",
    "--propagation",
    "private",
    "sh",
    "-c",
    'mount -t tmpfs tmpfs /tmp && exec "$@"',
    "sh",
)
TOOLS = ("uv==0.13.9", "pipx==1.18.4")
COMMANDS = ("herd", "herdmesh-config-store", "herdmesh-herder", "herdmesh-status-store", "herdmesh-worker")
_DROPPED = ("PYTHON", "VIRTUAL_ENV", "HERDMESH_", "TMPDIR", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_KEPT = ("HERDMESH_IVY_SETTINGS",)
_INSTALLED = "import herdmesh.cli, herdmesh.engine, pyspark, sys; print(sys.version.split()[0], herdmesh.cli.__file__)"


def environment(work: Path, venv: Path) -> dict[str, str]:
    """Environment of a new user who has only that virtual environment: nothing of the checkout's, and an empty cache,
    so that the jars are fetched.
    """
    inherited = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_DROPPED)}
    path = [one for one in os.environ["PATH"].split(os.pathsep) if not Path(one).is_relative_to(ROOT)]
    folders = {"XDG_CACHE_HOME": str(work / "cache"), "XDG_CONFIG_HOME": str(work / "config")}
    return {**inherited, **folders, "PATH": os.pathsep.join([str(venv / "bin"), *path])}


def install(python: str, venv: Path, wheels: Sequence[Path], env: Mapping[str, str]) -> str:
    """`pip install herdmesh`, whose parts are these wheels and no others of their names; returns Python's version."""
    subprocess.run([python, "-m", "venv", "--clear", str(venv)], check=True)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    # pip keeps what it fetched where it always does
    with_pip_cache = {name: value for name, value in env.items() if name != "XDG_CACHE_HOME"}
    # By a folder, not by constraints with addresses: pip 23.2, which Python 3.11 brings, fails on those with extras.
    command = [*pip, "install", "--quiet", "herdmesh", "--find-links", str(wheels[0].parent)]
    subprocess.run(command, check=True, cwd=venv, env=with_pip_cache)
    subprocess.run([*pip, "check"], check=True, cwd=venv, env=with_pip_cache)
    for wheel in wheels:
        _assert_installed(wheel, venv)
    asked = [str(venv / "bin" / "python"), "-c", _INSTALLED]
    done = subprocess.run(asked, check=True, cwd=venv, env=env, stdout=subprocess.PIPE)
    version, place = done.stdout.decode().split()
    assert Path(place).is_relative_to(venv), f"{place} is not of the environment"
    return version


def _assert_installed(wheel: Path, venv: Path) -> None:
    """The environment has this wheel's files, and not another release of the same name."""
    with zipfile.ZipFile(wheel) as packed:
        (record,) = [name for name in packed.namelist() if name.endswith(".dist-info/RECORD")]
        wanted = {line for line in packed.read(record).decode().splitlines() if not line.startswith(record)}
    (found,) = venv.glob(f"lib/python3*/site-packages/{record}")
    missing = wanted.difference(found.read_text().splitlines())
    assert not missing, f"{wheel.name} is not what was installed: {sorted(missing)[:3]}"


def install_by_tools(python: str, work: Path, wheels: Sequence[Path], env: Mapping[str, str]) -> None:
    """`uv tool install` and `pipx install` of these wheels, each into folders of its own: the commands of all parts are
    there and start.
    """
    tools = work / "tools"
    subprocess.run([python, "-m", "venv", "--clear", str(tools)], check=True)
    with_caches = {name: value for name, value in env.items() if name != "XDG_CACHE_HOME"}
    pip = [str(tools / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *TOOLS], check=True, env=with_caches)
    links, named = str(wheels[0].parent), f"herdmesh=={project_file(ROOT / 'meta')['project']['version']}"
    commands = {
        "uv": ("tool", "install", "--quiet", "--python", python, "--find-links", links, named),
        "pipx": ("install", "--quiet", "--python", python, "--pip-args", f"--find-links {links}", named),
    }
    for tool, arguments in commands.items():
        begun_s = time.monotonic()
        home, bin_dir = work / tool, work / f"{tool}-bin"
        places = {"UV_TOOL_DIR": home, "UV_TOOL_BIN_DIR": bin_dir, "PIPX_HOME": home, "PIPX_BIN_DIR": bin_dir}
        own = {**with_caches, **{name: str(path) for name, path in places.items()}}
        subprocess.run([str(tools / "bin" / tool), *arguments], check=True, env=own, cwd=work)
        for command in COMMANDS:
            asked = [str(bin_dir / command), "version" if command == "herd" else "--help"]
            subprocess.run(asked, check=True, env=own, cwd=work, stdout=subprocess.DEVNULL)
        print(f"{tool}: installed in {time.monotonic() - begun_s:.0f} s, and all commands start", flush=True)
        shutil.rmtree(home)


def has_own_tmp() -> bool:
    """Whether a process may have a /tmp of its own here."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_OWN_TMP, "true"], capture_output=True, check=False).returncode == 0


def main() -> int:
    """Try each Python in turn; the first failure ends it, and leaves its folder for inspection."""
    parser = argparse.ArgumentParser(prog="python -m tests.install", description="Install the wheels and run them.")
    parser.add_argument("--python", action="append", help="an interpreter; may be repeated")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder with the wheels")
    options = parser.parse_args()
    chosen: list[str] = options.python or [path for one in pythons.VERSIONS if (path := pythons.find(one)) is not None]
    wheels = sorted(options.dist.absolute().glob("*.whl"))
    if not chosen or not wheels:
        print("nothing to check: no Python 3.11 to 3.13 was found, or no wheels (make dist)", file=sys.stderr)
        return 1
    own_tmp = has_own_tmp()
    work = Path(tempfile.mkdtemp(prefix="herdmesh-install-", dir="/var/tmp"))
    for number, python in enumerate(chosen):
        begun_s = time.monotonic()
        venv, folder = work / f"venv-{number}", work / f"run-{number}"
        env = environment(work, venv)
        version = install(python, venv, wheels, env)
        print(f"Python {version}: installed in {time.monotonic() - begun_s:.0f} s", flush=True)
        begun_s = time.monotonic()
        if not own_tmp:
            (work / f"t{number}").mkdir()
            temporary = str(work / f"t{number}")
            env |= {"TMPDIR": temporary, "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
        command = [sys.executable, "-m", "tests.install.scenario", str(venv), str(folder)]
        done = subprocess.run([*(_OWN_TMP if own_tmp else ()), *command], cwd=ROOT, env=env, check=False)
        if done.returncode:
            print(f"Python {version}: failed; look into {folder}", file=sys.stderr)
            return 1
        print(f"Python {version}: everything works, nothing is left ({time.monotonic() - begun_s:.0f} s)", flush=True)
        shutil.rmtree(venv)
        shutil.rmtree(folder)
    install_by_tools(chosen[-1], work, wheels, environment(work, work / "tools"))
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
