"""Encoded views: encoded once per change for any number of callers, and never older than the state's marks."""

from __future__ import annotations

from typing import cast

import pytest

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.herder.service.encoded_views import CONNECTOR_FIELD, ROUND_MS, EncodedMeshViews
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.model.requests import CreateConnector, DeleteConnector, UpdateConnector
from herdmesh.herder.wire import views
from herdmesh.rpc import encoded
from services.herder.tests.world import World, sink

CONNECTORS = 5


class Watched(World):
    """A world whose views are encoded, with a clock that only a test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.clock_ms = 0
        self.lead()  # creates the herder that leads
        self.encoded = EncodedMeshViews(self.herder, lambda: self.clock_ms)

    def _carry_out(self, instruction: ins.Instruction) -> None:
        if isinstance(instruction, ins.ViewsChanged) and hasattr(self, "encoded"):
            self.encoded.mark(instruction)
        super()._carry_out(instruction)

    def everybody_reads(self) -> dict[str, bytes]:
        """The bytes that every caller gets: each connector whole and as status, each worker."""
        read: dict[str, bytes] = {}
        for name in self.herder.connector_names():
            shown = self.encoded.connector(name)
            assert shown is not None
            read[name] = self.encoded.full(shown)
            read[f"{name} status"] = self.encoded.status(shown)
        for view in self.herder.workers():
            worker = self.encoded.worker(view.worker_id)
            assert worker is not None
            read[view.worker_id] = self.encoded.of_worker(worker, 5)
        return read

    def fresh(self) -> dict[str, bytes]:
        """The same, encoded anew from the state."""
        read: dict[str, bytes] = {}
        for name in self.herder.connector_names():
            view = self.herder.connector(name)
            assert view is not None
            read[name] = encoded.field(2, views.connector(view).SerializeToString())
            read[f"{name} status"] = encoded.field(2, views.connector_status(view).SerializeToString())
        for worker in self.herder.workers():
            read[worker.worker_id] = encoded.field(5, views.worker(worker).SerializeToString())
        return read


@pytest.fixture
def world() -> Watched:
    made = Watched()
    made.worker("w1")
    made.worker("w2")
    for number in range(CONNECTORS):
        made.ask(CreateConnector(f"c{number}", sink(3)))
    made.advance(5_000)
    made.clock_ms += ROUND_MS
    return made


def test_a_connector_is_the_same_field_in_every_response() -> None:
    responses = (pb.ListConnectorsResponse, pb.GetConnectorResponse, pb.WatchConnectorsResponse)
    fields = [message.DESCRIPTOR.fields_by_name for message in responses]
    numbers = {(one.get("connectors") or one["connector"]).number for one in fields}
    numbers.add(pb.WatchConnectorsSnapshotPart.CONNECTORS_FIELD_NUMBER)
    metas = {one["meta"].number for one in (*fields, admin_pb.ListWorkersResponse.DESCRIPTOR.fields_by_name)}
    assert (numbers, metas) == ({CONNECTOR_FIELD}, {1})


def test_a_thousand_readers_encode_as_much_as_one(world: Watched) -> None:
    first = world.everybody_reads()
    assert first == world.fresh()
    made = world.encoded.made_count
    assert made >= 2 * CONNECTORS + 2
    for _ in range(1_000):
        again = world.everybody_reads()
        assert all(again[key] is data for key, data in first.items() if key.startswith("c"))
    assert world.encoded.made_count == made
    world.clock_ms += ROUND_MS
    world.everybody_reads()
    assert world.encoded.made_count == made, "nothing changed: a new round encodes nothing"


def test_a_change_encodes_only_what_changed_and_is_visible_at_once(world: Watched) -> None:
    world.everybody_reads()
    made = world.encoded.made_count
    before = world.encoded.connector("c1")
    world.ask(UpdateConnector("c1", {**sink(3), "note": "new"}))
    assert world.everybody_reads() == world.fresh()
    after = world.encoded.connector("c1")
    assert before is not None
    assert after is not None
    assert after.version > before.version
    assert world.encoded.made_count - made <= 2 + len(world.herder.workers()), "c1 twice, and who holds it"


def test_a_workers_effect_on_other_units_is_visible_within_a_round(world: Watched) -> None:
    world.everybody_reads()
    for name in ("w1", "w2"):
        world.kill(name)
    world.advance(30_000)
    world.clock_ms += ROUND_MS
    assert world.everybody_reads() == world.fresh()
    world.revive("w1")
    world.advance(1_000)
    world.clock_ms += ROUND_MS
    assert world.everybody_reads() == world.fresh()


def test_pages_are_joined_once_and_only_while_nothing_changes(world: Watched) -> None:
    names = world.herder.connector_names()
    page = world.encoded.page(names, "key", b"", status=True)
    assert world.encoded.page(names, "key", b"", status=True) is page
    assert world.encoded.kept_page("key") is page
    whole = cast(bytes, encoded.response(pb.ListConnectorsResponse, page))
    assert [one.name for one in pb.ListConnectorsResponse.FromString(whole).connectors] == names
    world.ask(DeleteConnector("c2"))
    assert world.encoded.kept_page("key") is None
    rest = world.encoded.page(names, "key", b"", status=True)
    assert [one.name for one in pb.ListConnectorsResponse.FromString(rest).connectors] == ["c0", "c1", "c3", "c4"]


def test_nothing_is_cached_of_deleted_connectors(world: Watched) -> None:
    for number in range(20):
        world.ask(CreateConnector(f"gone{number}", sink(1)))
        world.everybody_reads()
        world.ask(DeleteConnector(f"gone{number}"))
        world.advance(1_000)
    kept = world.encoded._connectors  # pyright: ignore[reportPrivateUsage]
    assert sorted(kept) == world.herder.connector_names()
