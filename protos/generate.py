"""Generates `libs/core/src/herdmesh/api` from the contracts in this folder. Owns every `*_pb2*` file there.

The generated code is committed, so that nobody needs a compiler to run Herdmesh; `--check` (in `make check`) fails
when it is not exactly what the contracts generate.

    python protos/generate.py            write the code, remove what no contract generates any more
    python protos/generate.py --check    only compare; exit 1 and name the files that differ
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

PROTOS = Path(__file__).resolve().parent
TARGET = PROTOS.parent / "libs" / "core" / "src"
GENERATED = "herdmesh/api/**/*_pb2*.py*"


def generate(target: Path) -> None:
    """Run protoc with the Python, gRPC and type-stub plugins of this environment over every contract."""
    contracts = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    well_known = str(files("grpc_tools") / "_proto")
    plugins = [
        f"--plugin=protoc-gen-{name}={Path(sys.executable).with_name(f'protoc-gen-{name}')}"
        for name in ("mypy", "mypy_grpc")
    ]
    outputs = [
        *(f"--{kind}_out={target}" for kind in ("python", "grpc_python")),
        *(f"--{kind}_out=quiet:{target}" for kind in ("mypy", "mypy_grpc")),
    ]
    includes = [f"-I{folder}" for folder in (PROTOS, well_known)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *includes, *plugins, *outputs, *contracts], check=True)


def differences(fresh: Path, committed: Path) -> list[str]:
    """Generated files that are missing, left over, or not equal, as paths below the source folder."""
    wanted = {path.relative_to(fresh) for path in fresh.glob(GENERATED)}
    # What Python compiled of them lies among them.
    present = {path.relative_to(committed) for path in committed.glob(GENERATED) if path.suffix != ".pyc"}
    changed = {path for path in wanted & present if (fresh / path).read_bytes() != (committed / path).read_bytes()}
    return sorted(str(path) for path in (wanted ^ present) | changed)


def main() -> int:
    """Command line: generate, or compare."""
    parser = argparse.ArgumentParser(prog="protos/generate.py", description="Generate herdmesh.api from the contracts.")
    parser.add_argument("--check", action="store_true", help="compare only")
    check: bool = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        generate(fresh)
        stale = differences(fresh, TARGET)
        if check and stale:
            print("generated code is not up to date; run make protos:", *stale, sep="\n  ", file=sys.stderr)
            return 1
        for name in stale:
            (TARGET / name).unlink(missing_ok=True)
            if (fresh / name).exists():
                (TARGET / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(fresh / name, TARGET / name)
        print(f"herdmesh.api is up to date ({len(stale)} files changed)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
