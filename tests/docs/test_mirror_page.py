"""docs/connectors/mirror.md: its offset syncs and checkpoints, written by our connectors and printed by Java's own
formatters.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Final

import pytest

from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java
from libs.connectors.tests.mirror.test_mirror_checkpoint import World
from libs.core.tests.engine.harness import Kafka, run_here
from tests.docs.blocks import ROOT, blocks
from tests.docs.test_http_sink_page import ONE_TRANSACTION
from tests.support.java_connect import MIRROR_JARS

pytestmark = pytest.mark.kafka

_PRINTER: Final = ROOT / "tests/support/MirrorLines.java"
#: The page's groups, with their offsets at the source.
_GROUPS: Final = {"audit": 1200, "billing": 1500, "late": 10}


def test_syncs_and_checkpoints_are_those_of_the_page(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    (shown,) = (block.text for block in blocks("docs/connectors/mirror.md") if block.language == "text")
    world = World(Kafka(kafka_bootstrap), tmp_topic())
    for ids in (range(1_000), range(1_000, 1_500)):
        world.broker.produce_ids(world.topic, ids, partition=0)
        # A busy broker's records come in several reads: a sync of each would be another line.
        world.mirror(**{"offset.lag.max": "10000"}, **ONE_TRANSACTION)
    for group, offset in _GROUPS.items():
        world.commit(f"{world.name}-g-{group}", world.topic, offset)
    run_here(world.checkpoint_spec())
    checkpoints = sorted(world.checkpoints(), key=lambda one: one.group)
    records = [("sync", one.key(), one.value()) for one in world.syncs(world.target)]
    records += [("checkpoint", one.key(), one.value()) for one in checkpoints]
    names = {f"{world.name}-g-": "", f"{world.source}.": "eu.", world.name: "orders"}
    printed = _printed_by_java(records)
    for here, there in names.items():
        printed = printed.replace(here, there)
    assert printed == shown


def _printed_by_java(records: list[tuple[str, bytes, bytes]]) -> str:
    """Lines of `OffsetSyncFormatter` and `CheckpointFormatter`."""
    java = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-cp", ensure_jars(MIRROR_JARS), str(_PRINTER)]
    given = [text for kind, key, value in records for text in (kind, key.hex(), value.hex())]
    return subprocess.run([*java, *given], check=True, stdout=subprocess.PIPE, text=True, timeout=90).stdout
