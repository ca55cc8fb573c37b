"""Batches with bad records: the good records come out in order as if the bad ones were not there; failures are reported
in the order of the records, each once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connect.chain import chain_config
from herdmesh.connect.chain.bisect_conversion import CAREFUL_BATCHES, SHORT_RECORDS
from herdmesh.connect.chain.record_chain import SinkChain, SourceChain
from herdmesh.connect.chain.record_failure_policy import (
    HEADER_CONVERTER,
    KEY_CONVERTER,
    TRANSFORMATION,
    VALUE_CONVERTER,
    RecordSkipped,
)
from herdmesh.connect.converters import CONVERTERS
from herdmesh.connect.errors import RetriableError
from herdmesh.connect.model.data import Batch, Header

T = TypeVar("T")
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFIG = {
    "key.converter": JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
    "header.converter": JSON,
    "header.converter.schemas.enable": "false",
    "transforms": "drop,mask,route",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "secret",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "t(.*)",
    "transforms.route.replacement": "u$1",
    "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.drop.predicate": "tombstone",
    "predicates": "tombstone",
    "predicates.tombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}
#: Kind of record, and the stage in which it fails; "" = none.
KINDS = {
    "good": "", "tombstone": "", "key": KEY_CONVERTER, "value": VALUE_CONVERTER, "header": HEADER_CONVERTER,
    "step": TRANSFORMATION,
}  # fmt: skip


class Noted:
    """Skips failing records, and remembers stage and position of each."""

    eager = True

    def __init__(self) -> None:
        self.failed: list[tuple[int, str]] = []
        self.calls = 0

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        self.calls += 1
        try:
            return call()
        except Exception as error:
            self.failed.append((at, stage))
            raise RecordSkipped from error


def sink_batch(kinds: list[str]) -> Batch:
    keys = [b"{" if kind == "key" else b'"k%d"' % at for at, kind in enumerate(kinds)]
    special = {"value": b"{", "step": b"7", "tombstone": None}
    values = [special.get(kind, b'{"id":%d,"secret":"x"}' % at) for at, kind in enumerate(kinds)]
    headers = [[("h", b"{" if kind == "header" else b"1")] for kind in kinds]
    return Batch("topic", 2, keys, values, range(100, 100 + len(kinds)), [5] * len(kinds), headers=headers)


def source_batch(kinds: list[str]) -> Batch:
    keys: list[Any] = [object() if kind == "key" else f"k{at}" for at, kind in enumerate(kinds)]
    special = {"value": {"id": object()}, "step": 7, "tombstone": None}
    values = [special.get(kind, {"id": at, "secret": "x"}) for at, kind in enumerate(kinds)]
    headers = [[Header("h", object() if kind == "header" else 1)] for kind in kinds]
    return Batch("topic", None, keys, values, timestamps_ms=[5] * len(kinds), headers=headers)


LISTS = st.lists(st.sampled_from(["good"] * 12 + list(KINDS)), min_size=1, max_size=120)


@settings(max_examples=80)
@given(LISTS)
def test_a_sinks_good_records_come_out_and_each_bad_one_is_reported_once(kinds: list[str]) -> None:
    chain, noted = chain_config.sink_chain(CONFIG), Noted()
    made = chain.run(sink_batch(kinds), noted)
    assert noted.failed == [(at, KINDS[kind]) for at, kind in enumerate(kinds) if KINDS[kind]]
    wanted = [at for at, kind in enumerate(kinds) if kind == "good"]
    assert [value["id"] for one in made for value in one.values] == wanted
    assert [key for one in made for key in one.keys] == [f"k{at}" for at in wanted]
    assert [offset for one in made for offset in one.offsets] == [100 + at for at in wanted]
    assert all(value["secret"] == "" for one in made for value in one.values)
    assert {(one.topic, one.partition) for one in made} <= {("uopic", 2)}
    assert all(len(one.values) for one in made)


@settings(max_examples=80)
@given(LISTS)
def test_a_sources_good_records_are_written_and_each_bad_one_is_reported_once(kinds: list[str]) -> None:
    chain, noted = chain_config.source_chain(CONFIG), Noted()
    given_batch = source_batch(kinds)
    made = chain.run(given_batch, noted)
    assert noted.failed == [(at, KINDS[kind]) for at, kind in enumerate(kinds) if KINDS[kind]]
    wanted = [at for at, kind in enumerate(kinds) if kind == "good"]
    assert [json.loads(value)["id"] for one in made for value in one.values] == wanted
    assert [place for one in made for place in one.places] == wanted
    assert [key for one in made for key in one.keys] == [b'"k%d"' % at for at in wanted]
    assert [header for one in made for headers in one.headers for header in headers] == [("h", b"1")] * len(wanted)
    assert given_batch.values == source_batch(kinds).values or any(kind == "value" for kind in kinds)


@pytest.mark.parametrize("kind", ["key", "value", "header", "step"])
@pytest.mark.parametrize("make", [chain_config.sink_chain, chain_config.source_chain])
def test_one_bad_record_in_a_thousand_is_processed_alone(
    make: Callable[..., SinkChain | SourceChain], kind: str
) -> None:
    """Processing a record alone is expensive; a few beside it may be, when a loop for them would cost as much."""
    chain = make(CONFIG)
    batch = sink_batch if isinstance(chain, SinkChain) else source_batch
    for at in (0, 3, 500, 998, 999):
        noted = Noted()
        made = chain.run(batch(["good"] * at + [kind] + ["good"] * (999 - at)), noted)
        assert sum(len(one.values) for one in made) == 999
        assert len(made) <= 3
        assert len(noted.failed) == 1
        assert noted.calls <= 6 * (1 + SHORT_RECORDS)


def test_batches_are_tried_whole_again_after_enough_good_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then a bad record costs no attempt at the whole batch."""
    sizes: list[int] = []
    json_class: Any = CONVERTERS["JsonConverter"]
    read_many = json_class.read_many

    def counted(self: Any, data: Any) -> Any:
        sizes.append(len(data))
        return read_many(self, data)

    monkeypatch.setattr(json_class, "read_many", counted)
    chain = chain_config.sink_chain({**CONFIG, "key.converter": "StringConverter"})
    chain.run(sink_batch(["value"] + ["good"] * 999), Noted())
    for _ in range(CAREFUL_BATCHES):
        sizes.clear()
        chain.run(sink_batch(["good"] * 1_000), Noted())
        assert max(sizes) < 1_000
    sizes.clear()
    chain.run(sink_batch(["good"] * 1_000), Noted())
    assert sizes == [1_000]


def test_an_unreachable_registry_is_queried_only_for_the_current_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request may take seconds. The first record waits in its own retries, and the records behind it come
    after.
    """
    asked: list[bytes] = []
    json_class: Any = CONVERTERS["JsonConverter"]

    def away(_self: Any, data: Any) -> Any:
        asked.append(data)
        raise RetriableError("away")

    class Stopped(Exception):
        pass

    class Stopping(Noted):
        def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
            try:
                return call()
            except RetriableError as error:
                raise Stopped from error

    monkeypatch.setattr(json_class, "read", away)
    monkeypatch.setattr(json_class, "read_many", away)
    strings = {"key.converter": "StringConverter", "header.converter": "StringConverter"}
    chain = chain_config.sink_chain({**CONFIG, **strings})
    with pytest.raises(Stopped):
        chain.run(sink_batch(["good"] * 1_000), Stopping())
    assert len(asked) <= 3
