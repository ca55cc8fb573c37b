"""A newer release made of this tree: its contracts have more members, and its services use them.

Owns a folder that, put before everything else on PYTHONPATH, makes a service one of the newer release: `herdmesh.api`
generated from contracts in which every enum has an additional value `..._TOMORROW`, every message a field `tomorrow`,
and both sides of the worker session a message `tomorrow_message`; and `sitecustomize.py` beside this file, which makes
the service send them. Any process that reads `herdmesh.api` of the tree is then the older release, whichever of the two
it talks to.

Invariant: nothing of the tree changes, and no change of the newer release's contracts breaks an older one
(`buf breaking` checks real changes).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_NUMBER = 90
_FIELD = 20_000


@dataclass(frozen=True)
class NewerRelease:
    """The folder, and the additions that its services reported as sent."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment that makes a service one of the newer release."""
        path = os.pathsep.join(filter(None, (str(self.folder), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, "HERDMESH_NEWER_SENT": str(self._sent)}

    def sent(self) -> set[str]:
        """Additions of the newer release that were sent so far, by their names in `sitecustomize.py`."""
        return set(self._sent.read_text().split()) if self._sent.exists() else set()

    @property
    def _sent(self) -> Path:
        return self.folder / "sent.txt"


def make_newer_release(folder: Path) -> NewerRelease:
    """Write its contracts and the code generated from them below `folder`."""
    protos = folder / "protos"
    contracts: list[str] = []
    for path in sorted((_ROOT / "protos").rglob("*.proto")):
        name = path.relative_to(_ROOT / "protos")
        (protos / name).parent.mkdir(parents=True, exist_ok=True)
        (protos / name).write_text(_extended(path.read_text()))
        contracts.append(str(name))
    includes = [f"-I{one}" for one in (protos, files("grpc_tools") / "_proto")]
    outputs = [f"--{kind}_out={folder}" for kind in ("python", "grpc_python")]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *includes, *outputs, *contracts], check=True)
    for path in folder.rglob("*_pb2_grpc.py"):
        code = re.sub(r"=([\w.]+)\.SerializeToString\b", r"=sitecustomize.sent(\1)", path.read_text())
        path.write_text(code.replace("import grpc\n", "import grpc\nimport sitecustomize\n", 1))
    shutil.copy(Path(__file__).with_name("sitecustomize.py"), folder)
    return NewerRelease(folder)


def _extended(contract: str) -> str:
    """A contract with one additional value, field and session message."""
    contract = re.sub(
        r"^( *)(\w+)_UNSPECIFIED = 0;$", rf"\g<0>\n\1\2_TOMORROW = {_NUMBER};", contract, flags=re.MULTILINE
    )
    contract = re.sub(r"^( *)message \w+ \{$", rf"\g<0>\n\1  string tomorrow = {_FIELD};", contract, flags=re.MULTILINE)
    return re.sub(
        r"^message Session(?:Request|Response) \{\n(?:.*\n)*?  oneof message \{$",
        rf"\g<0>\n    string tomorrow_message = {_FIELD + 1};",
        contract,
        flags=re.MULTILINE,
    )
