"""Tests of converting batches to requests: every record once
and in order, each request with the offsets it holds.
"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.model.data import Struct
from herdmesh.connect.model.schemas import INT32, STRING, Schema
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connectors.http.requests import RANGES_MAX, HttpRequest, ranges_text, requests_of
from herdmesh.connectors.http.settings import HttpSettings, settings_of
from libs.connectors.tests.http.http_receiver import offsets_of

POINT = Schema("STRUCT", fields=[("x", INT32), ("name", STRING)])
BATCHED = {"batching.enabled": "true", "batch.max.size": "3"}


def settings(**config: str) -> HttpSettings:
    return settings_of({"http.url": "http://h/in", **{k.replace("_", "."): v for k, v in config.items()}})


def batch_of(
    values: list[Any], *, offsets: list[int] | None = None, keys: list[Any] | None = None, schema: Schema | None = None
) -> SinkBatch:
    offsets = list(range(len(values))) if offsets is None else offsets
    first, last = (offsets[0], offsets[-1]) if offsets else (0, 0)
    return SinkBatch(
        "renamed", 3, first, last, values, keys or [None] * len(values), offsets, [None] * len(values),
        value_schema=schema, original_topic="t",
    )  # fmt: skip


class Refused:
    """Stores the records that no request could be built for."""

    def __init__(self) -> None:
        self.all: list[tuple[int, str]] = []

    def __call__(self, _batch: SinkBatch, place: int, error: BaseException) -> None:
        self.all.append((place, str(error)))


def never(_batch: SinkBatch, place: int, error: BaseException) -> None:
    raise AssertionError((place, error))


def held(requests: list[HttpRequest]) -> list[int]:
    return [request.offsets[place] for request in requests for place in request.places]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(0, 2), st.sampled_from("ab")), max_size=40),
    st.integers(1, 7),
    st.booleans(),
)
def test_each_record_is_in_one_request_in_order(
    records: list[tuple[int, int | None, str]], most: int, by_key: bool
) -> None:
    offsets: list[int] = []
    for gap, _, _ in records:
        offsets.append((offsets[-1] if offsets else 0) + gap)
    batch = batch_of([value for _, value, _ in records], offsets=offsets, keys=[key for _, _, key in records])
    chosen = settings_of(
        {"http.url": f"http://h/{'${key}' if by_key else ''}", "batching.enabled": "true", "batch.max.size": str(most)}
    )
    made = requests_of(batch, chosen, never)
    assert held(made) == [offset for offset, (_, value, _) in zip(offsets, records, strict=True) if value is not None]
    for request in made:
        assert 1 <= len(request.places) <= most
        assert offsets_of(request.headers("c", chosen)["Herdmesh-Offsets"]) == held([request])
        assert [json.loads(line) for line in request.body(chosen).splitlines()] == [
            batch.values[place] for place in request.places
        ]
        if by_key:
            assert {request.url} == {f"http://h/{batch.keys[place]}" for place in request.places}
    if not by_key:  # all requests but the last are full
        assert all(len(request.places) == most for request in made[:-1])


@given(st.lists(st.integers(0, 60), unique=True).map(sorted))
def test_ranges_round_trip(offsets: list[int]) -> None:
    assert not offsets or offsets_of(ranges_text(offsets)) == offsets


def test_the_offsets_header_stays_short() -> None:
    offsets = list(range(0, 4 * RANGES_MAX, 2))
    made = requests_of(
        batch_of(list(offsets), offsets=offsets), settings(batching_enabled="true", batch_max_size="9999"), never
    )
    assert [len(request.places) for request in made] == [RANGES_MAX, RANGES_MAX]
    assert held(made) == offsets
    largest = ranges_text(
        [number for at in range(RANGES_MAX) for number in (2**63 - 400 + 3 * at, 2**63 - 399 + 3 * at)]
    )
    assert largest.count(",") == RANGES_MAX - 1
    assert len(largest) < 4_000


def test_a_request_is_identified_by_its_original_topic_and_offsets() -> None:
    batch = batch_of([1, 2, 3, 4], offsets=[7, 8, 10, 11])
    whole, rest = requests_of(batch, settings_of({"http.url": "http://h/${topic}", **BATCHED}), never)
    assert whole.url == "http://h/renamed"
    assert whole.headers("my sink", settings()) == {
        "Idempotency-Key": "my%20sink/t/3/7-10",
        "Herdmesh-Offsets": "7-8,10",
    }
    assert str(whole) == "records t-3@7..10"
    assert str(rest) == "record t-3@11"
    first, second = whole.halves()
    assert (held([first]), held([second])) == ([7], [8, 10])


@pytest.mark.parametrize(
    ("config", "values", "schema", "bodies"),
    [
        (
            {"request.body.format": "json"}, [{"a": 1.5}, "x", b"\xff", [None]], None,
            [b'{"a":1.5}', b'"x"', b'"/w=="', b"[null]"],
        ),
        ({}, [{"a": 1.5}, '{"a":1}', b"\xff", [None]], None, [b'{"a":1.5}', b'{"a":1}', b"\xff", b"[null]"]),
        (
            {"request.body.format": "string"}, [{"a": 1}, "x\ud800é", b"\xff", 5], None,
            [b'{"a":1}', "x?é".encode(), b"\xff", b"5"],
        ),
        ({}, [Struct(POINT, [1, "n"])], POINT, [b'{"x":1,"name":"n"}']),
        ({"request.body.format": "string"}, [Struct(POINT, [1, "n"])], POINT, [b'{"x":1,"name":"n"}']),
        ({}, ['{"a":1}'], STRING, [b'{"a":1}']),
        ({"request.body.format": "json"}, ["x"], STRING, [b'"x"']),
        ({"batching.enabled": "true"}, [1, None, 2], None, [b"1\n2\n"]),
        ({"batching.enabled": "true", "batch.json.as.array": "true"}, [1, "b"], None, [b'[1,"b"]']),
        (
            {"batching.enabled": "true", "batch.prefix": "<", "batch.separator": "|", "batch.suffix": ">"}, [1, 2],
            None, [b"<1|2>"],
        ),
    ],
)  # fmt: skip
def test_the_body_has_the_configured_framing(
    config: dict[str, str], values: list[Any], schema: Schema | None, bodies: list[bytes]
) -> None:
    chosen = settings_of({"http.url": "http://h/in", **config})
    made = requests_of(batch_of(values, schema=schema), chosen, never)
    assert [request.body(chosen) for request in made] == bodies


def test_a_compressed_body_has_the_same_bytes_each_time() -> None:
    chosen = settings(http_compression="gzip")
    (request,) = requests_of(batch_of([{"a": 1}]), chosen, never)
    assert request.body(chosen) == request.body(chosen)
    assert gzip.decompress(request.body(chosen)) == b'{"a":1}'
    assert request.headers("c", chosen)["Content-Encoding"] == "gzip"


@pytest.mark.parametrize(
    ("choice", "sent", "refused"),
    [("ignore", ["PUT"], []), ("delete", ["PUT", "DELETE", "DELETE"], []), ("fail", ["PUT"], [1, 2])],
)
def test_a_record_without_a_value_is_ignored_refused_or_deleted(
    choice: str, sent: list[str], refused: list[int]
) -> None:
    heard = Refused()
    chosen = settings_of(
        {"http.url": "http://h/${key}", "request.method": "PUT", "behavior.on.null.values": choice, **BATCHED}
    )
    made = requests_of(batch_of([1, None, None], keys=["a", "a", "b"]), chosen, heard)
    assert [request.method for request in made] == sent
    assert [place for place, _ in heard.all] == refused
    if choice == "delete":
        assert [request.url for request in made] == ["http://h/a", "http://h/a", "http://h/b"]
        assert made[1].body(chosen) == b""


def test_a_key_is_quoted_in_the_url_or_refused() -> None:
    heard = Refused()
    keys: list[Any] = ["a/b?c&d", b"\xff", 7, {"x": 1}, None, "", "..", "ok"]
    made = requests_of(batch_of(list(range(8)), keys=keys), settings_of({"http.url": "http://h/${key}"}), heard)
    assert [request.url for request in made] == [
        "http://h/a%2Fb%3Fc%26d", "http://h/%FF", "http://h/7", "http://h/%7B%22x%22%3A1%7D", "http://h/ok",
    ]  # fmt: skip
    assert [place for place, _ in heard.all] == [4, 5, 6]
    assert "no key" in heard.all[0][1]


@pytest.mark.parametrize(
    ("topic", "url"),
    [("a b", "http://h/a%20b/x"), ("\ud800", "http://h/%3F/x"), ("..", ""), (".", ""), ("", "")],
)
def test_a_transformed_topic_is_quoted_in_the_url_or_refused(topic: str, url: str) -> None:
    heard = Refused()
    batch = batch_of([1])
    batch.topic = topic
    made = requests_of(batch, settings_of({"http.url": "http://h/${topic}/x"}), heard)
    assert [request.url for request in made] == ([url] if url else [])
    assert [place for place, _ in heard.all] == ([] if url else [0])


def test_a_value_that_does_not_fit_its_schema_is_refused_alone() -> None:
    heard = Refused()
    bad = Struct(POINT, [None, None])
    values = [Struct(POINT, [1, "a"]), bad, Struct(POINT, [2, "b"])]
    made = requests_of(batch_of(values, schema=POINT), settings_of({"http.url": "http://h/", **BATCHED}), heard)
    assert [place for place, _ in heard.all] == [1]
    assert [request.body(settings(batching_enabled="true")) for request in made] == [
        b'{"x":1,"name":"a"}\n{"x":2,"name":"b"}\n'
    ]
    assert all(first.last_offset < second.first_offset for first, second in pairwise(made))
