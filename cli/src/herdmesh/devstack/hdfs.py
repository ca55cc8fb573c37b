"""One real HDFS in one process, for tests: Hadoop's mini cluster of a name node and a data node.

Owns everything under the folder: `hdfs.log`, `details.json`, `target/` with the nodes' files. Empty at each start.

It runs HDFS's own code, with its protocols, leases and permissions (it trusts the user name of the client: no
Kerberos). It has no second copy of a block, and no name nodes that take over from each other.

Invariant: it listens on 127.0.0.1 only.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.java_server import JavaServer

_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_SETTINGS = {
    "dfs.namenode.edits.noeditlogchannelflush": "true",  # a power failure of a test server does not matter
    "dfs.namenode.handler.count": "4",
    "dfs.datanode.handler.count": "2",
}


class HdfsServer(JavaServer):
    """An HDFS with its files in `folder`."""

    what = "the HDFS"
    group = "hdfs"
    start_timeout_s = 90.0
    stop_timeout_s = 20.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._details = self.folder / "details.json"
        self._port = 0

    @property
    def url(self) -> str:
        """`hdfs://127.0.0.1:PORT`, known while it serves. Raises DevstackError before."""
        if not self._port:
            raise DevstackError(f"the HDFS in {self.folder} was not started yet")
        return f"hdfs://127.0.0.1:{self._port}"

    def kill(self) -> None:
        """Kill the server; the next start uses another port."""
        self._port = 0
        super().kill()

    def _prepared(self) -> Sequence[str | Path]:
        shutil.rmtree(self.folder / "target", ignore_errors=True)
        self._details.unlink(missing_ok=True)
        return (
            *(_MAIN, "-format", "-datanodes", "1", "-nnport", "0", "-writeDetails", self._details),
            *(part for name, value in _SETTINGS.items() for part in ("-D", f"{name}={value}")),
        )

    async def _serves(self) -> bool:
        """Read the name node's port, which is written once it serves."""
        try:
            self._port = int(json.loads(self._details.read_text())["namenode_port"])
        except (FileNotFoundError, ValueError):  # ValueError: the file is being written
            return False
        return True
