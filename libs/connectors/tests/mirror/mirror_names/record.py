"""Recorder of `recorded.jsonl`: the results of MirrorMaker's
own policies and connector for odd topic names.

    python -m libs.connectors.tests.mirror.mirror_names.record

Each line is a config with the names of MirrorMaker's own topics, and of each topic: its name, its name at the target,
whether it is heartbeats, internal, a cycle, and copied.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path

from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java

OUT = Path(__file__).with_name("recorded.jsonl")
_HERE = Path(__file__).parent
_PARTS = ("a", "b", "heartbeats", "mm2-offset-syncs", "checkpoints", "internal", "__x", "t", "T-1", "")
_OWN = (
    "heartbeats", "a.heartbeats", "b.heartbeats", "a-heartbeats", "b.a.heartbeats", "ab.heartbeats", "xheartbeats",
    "mm2-offset-syncs.b.internal", "mm2-offset-syncs_b_internal", "mm2.internal", "mm2-configs.x.internal",
    "mm2internal", "a.checkpoints.internal", "a_checkpoints_internal", "checkpoints.internal", "acheckpointsinternal",
    ".checkpoints", "__consumer_offsets", "_schemas", ".hidden", "x.internal", "x-internal", "x_internal", "internal",
    "connect-offsets", "b.orders", "b.b", "b", "a", "a.b.orders", "c.b.orders", "b_orders", "b-orders", "borders",
    "orders.replica", "...", "b..", ".b.", "t.b", "t.b.",
)  # fmt: skip
_POLICIES = ("DefaultReplicationPolicy", "IdentityReplicationPolicy")


def lines() -> list[str]:
    """Return every config with fixed and random names."""
    chance, found = random.Random(7), list[str]()
    for policy in _POLICIES:
        for separator in (".", "_", "-", "", ".."):
            for internal in ("true", "false"):
                config = {
                    "source.cluster.alias": "a",
                    "target.cluster.alias": "b",
                    "replication.policy.class": f"org.apache.kafka.connect.mirror.{policy}",
                    "replication.policy.separator": separator,
                    "replication.policy.internal.topic.separator.enabled": internal,
                    "source.cluster.bootstrap.servers": "h:1",
                    "topics": ".*",
                }
                if not separator and policy == _POLICIES[0]:
                    continue  # refused here, and documented (docs/connectors/mirror.md)
                made = {
                    chance.choice([".", "_", "-", separator]).join(chance.choices(_PARTS, k=chance.randint(1, 4)))
                    for _ in range(60)
                }
                found.append(json.dumps({"config": config, "names": sorted({*_OWN, *made} - {"", ".", ".."})}))
    return found


def main() -> None:
    """Write the file."""
    java, jars = find_java().executable, ensure_jars("connect-mirror")
    with tempfile.TemporaryDirectory() as folder:
        javac = java.resolve().with_name("javac")
        subprocess.run([str(javac), "-cp", jars, "-d", folder, str(_HERE / "MirrorNames.java")], check=True)
        command = [str(java), "-cp", f"{folder}:{jars}", "org.apache.kafka.connect.mirror.MirrorNames"]
        given = "".join(f"{line}\n" for line in lines())
        said = subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout
    vectors = [line.removeprefix("VECTOR ") for line in said.splitlines() if line.startswith("VECTOR ")]
    OUT.write_text("".join(f"{line}\n" for line in vectors))


if __name__ == "__main__":
    main()
