"""Fields of a wrong type in a source task's batch: each is refused by its name, with the record's index."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from herdmesh.connect.errors import DataError
from herdmesh.connect.model.data import Header
from herdmesh.connect.model.schemas import OPTIONAL_STRING
from herdmesh.connect.spi.author_checks import shown
from herdmesh.connect.spi.connector import Config, SourceBatch, SourceTask, SourceTaskContext
from herdmesh.engine import TaskKind
from herdmesh.engine.source.record_check import check_given
from libs.core.tests.engine.harness import Kafka, make_spec, run_here

_WRONG: list[tuple[str, Any, str]] = [
    ("topic", None, "topic is None (NoneType)"),
    ("topic", b"t", "topic is b't' (bytes)"),
    ("topic", 5, "topic is 5 (int)"),
    ("partition", "0", "partition is '0' (str)"),
    ("partition", 1.0, "partition is 1.0 (float)"),
    ("key_schema", 5, "key_schema is 5 (int)"),
    ("value_schema", "string", "value_schema is 'string' (str)"),
    ("timestamps_ms", [1.5], "timestamp_ms is 1.5 (float)"),
    ("timestamps_ms", ["2026"], "timestamp_ms is '2026' (str)"),
    ("timestamps_ms", [1, 2], "timestamps_ms is [1, 2] (list)"),
    ("headers", [{"a": 1}], "headers is {'a': 1} (dict)"),
    ("headers", ["ab"], "headers is 'ab' (str)"),
    ("headers", [5], "headers is 5 (int)"),
    ("headers", [[("a", 1)]], "headers is ('a', 1) (tuple)"),
    ("headers", [[Header(5, 1)]], "headers is 5 (int)"),  # pyright: ignore[reportArgumentType]
    ("source_partition", "a", "source_partition is 'a' (str)"),
    ("source_offset", 7, "source_offset is 7 (int)"),
    ("source_offset", {"a": {1}}, "source_offset is {'a': {1}} (dict)"),
    ("source_offset", {1: 2}, "source_offset is {1: 2} (dict)"),
]


def batch_of(**fields: Any) -> SourceBatch:
    given: dict[str, Any] = {
        "topic": "t",
        "values": ["v"],
        "source_partition": {"file": "a"},
        "source_offset": {"line": 7},
        **fields,
    }
    return SourceBatch(**given)


@pytest.mark.parametrize(("field", "value", "said"), _WRONG, ids=range(len(_WRONG)))
def test_a_field_of_a_wrong_type_is_named_with_its_record(field: str, value: Any, said: str) -> None:
    with pytest.raises(DataError) as refused:
        check_given(batch_of(**{field: value}))
    assert f"SourceBatch.{said}: it must be" in str(refused.value)
    if field != "source_offset":
        assert "source offset {'line': 7} (dict)" in str(refused.value)


def test_valid_fields_pass() -> None:
    check_given(batch_of(key_schema=OPTIONAL_STRING, keys=["k"], timestamps_ms=[None], headers=[[Header("a", None)]]))
    check_given(SourceBatch("", (), None, {"a": None, "b": 1.5, "c": True}))


def test_a_value_whose_repr_raises_or_is_long_is_shown() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no")

    assert shown(Odd()) == "one whose repr raises ValueError (Odd)"
    assert len(shown("x" * 1_000)) < 120


class GivingSource(SourceTask):
    """Returns one batch, once."""

    batch: ClassVar[SourceBatch]
    given = False

    def start(self, config: Config, context: SourceTaskContext) -> None:
        pass

    def poll(self) -> SourceBatch | None:
        found, self.given = None if self.given else GivingSource.batch, True
        return found

    def stop(self) -> None:
        pass


@pytest.mark.kafka
def test_a_run_ends_with_the_name_of_the_invalid_field(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = Kafka(kafka_bootstrap)
    topic = kafka.create_topic(tmp_topic(), 1)
    spec = make_spec(
        kafka.bootstrap, tmp_topic("source"), f"{__name__}:GivingSource", {}, kind=TaskKind.SOURCE,
        worker_config={"offset.storage.partitions": "1", "value.converter.schemas.enable": "false"},
    )  # fmt: skip
    for place in (0, 3, 7, 13, 15, 17):  # a wrong field of each kind; the first is the topic
        field, value, said = _WRONG[place]
        fields: dict[str, Any] = {"topic": topic, "keys": ["k"], field: value}
        monkeypatch.setattr(GivingSource, "batch", batch_of(**fields), raising=False)
        with pytest.raises(DataError, match=rf"SourceBatch\.{re.escape(said)}: it must be"):
            run_here(spec)
