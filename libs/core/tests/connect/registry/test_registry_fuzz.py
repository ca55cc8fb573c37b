"""Invalid bytes and invalid values through the converters with a registry: a value, or an error of that record, and
nothing else. The generators are those of `tests/replay/test_records_fuzz.py`; the registry is the fake. Also:
validating a config loads neither an HTTP client nor a format's library.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from herdmesh.connect.model.data import Struct
from herdmesh.connect.model.schemas import INT64, OPTIONAL_STRING, Schema
from herdmesh.connect.registry.wire import HEAD_BYTES
from libs.core.tests.connect.registry.fake_registry import FakeRegistry
from libs.core.tests.connect.registry.typed_values import converter
from tests.replay.test_records_fuzz import any_value, sourced, strings, sunk, tried
from tests.support.sizes import soak_or
from tests.support.tally import note

_TRIES = soak_or(300, 100_000)
_NAMES = ("AvroConverter", "JsonSchemaConverter", "ProtobufConverter")
_WIDE = Schema("STRUCT", name="W", fields=[
    ("n", INT64), ("t", OPTIONAL_STRING), ("l", Schema("ARRAY", optional=True, value_schema=INT64)),
    ("m", Schema("MAP", optional=True, name="m", key_schema=OPTIONAL_STRING, value_schema=INT64)),
])  # fmt: skip


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    made = FakeRegistry()
    yield made
    made.stop()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", _NAMES)
def test_any_bytes_give_a_value_or_a_record_error(registry: FakeRegistry, name: str) -> None:
    made = converter(name, registry.url).for_topic("fuzz")
    good = made.write(Struct(_WIDE, [1, "x", [1, 2], {"k": 3}]), _WIDE) or b""
    chance = random.Random(f"bytes {name}")
    outcomes = Counter[str]()
    for payload in strings(chance, _TRIES):
        head = chance.choice([good[:HEAD_BYTES], good[: HEAD_BYTES + 1], good[: chance.randrange(len(good))], bytes(5)])
        outcome, read = tried(lambda data=head + payload: made.read(data), head + payload)
        outcomes[outcome] += 1
        if read is not None:
            tried(lambda read=read: made.write(read[1], read[0]), head + payload)
    assert sum(outcomes.values()) == _TRIES
    note(f"bytes into {name}", runs=1, operations=_TRIES, faults=outcomes)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", _NAMES)
def test_any_value_gives_bytes_or_a_record_error(registry: FakeRegistry, name: str) -> None:
    made = converter(name, registry.url)
    chance = random.Random(f"values {name}")
    outcomes = Counter[str]()
    for number in range(_TRIES):
        schema, value = any_value(chance)
        of_topic = made.for_topic(f"t{number}")
        outcome, written = tried(
            lambda to=of_topic, value=value, schema=schema: to.write(value, schema), (schema, value)
        )
        outcomes[outcome] += 1
        if written is not None and (name != "ProtobufConverter" or number % 50 == 0):  # protoc takes 0.1 s for a schema
            tried(lambda of=of_topic, written=written: of.read(written), written)
    assert outcomes["value"]
    note(f"values into {name}", runs=1, operations=_TRIES, faults=outcomes)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", _NAMES)
def test_a_task_that_tolerates_all_errors_keeps_or_counts_every_record(registry: FakeRegistry, name: str) -> None:
    """Bytes with this registry's prefix, through a sink's chain in batches; values through a source's."""
    good = converter(name, registry.url).for_topic("t").write(Struct(_WIDE, [1, "x", [1, 2], {"k": 3}]), _WIDE) or b""
    config = {"key.converter": "StringConverter", "value.converter": name, "transforms": "drop"}
    config |= {"value.converter.schema.registry.url": registry.url, "transforms.drop.headers": "h"}
    config |= {"transforms.drop.type": "DropHeaders"}
    chance = random.Random(f"chains {name}")
    given = [chance.choice([good[:HEAD_BYTES], good[: HEAD_BYTES + 1], b"", good]) + one
             for one in strings(chance, _TRIES)]  # fmt: skip
    kept, skipped = sunk(config, given)
    assert kept + skipped == _TRIES
    assert kept
    count = _TRIES if name != "ProtobufConverter" else _TRIES // 50  # protoc takes 0.1 s for a schema
    sent, refused = sourced(config, [any_value(chance) for _ in range(count)])
    assert sent + refused == count
    assert sent
    note(f"chains of {name}", runs=2, operations=_TRIES + count, faults=Counter(sink=skipped, source=refused))


def test_validation_loads_no_client_and_no_format_library() -> None:
    code = (
        "import sys\n"
        "from herdmesh.connect.chain import chain_config\n"
        "url = {'value.converter.schema.registry.url': 'http://127.0.0.1:1'}\n"
        f"for name in {_NAMES!r}:\n"
        "    given = {'key.converter': 'String', 'value.converter': name, **url}\n"
        "    assert chain_config.violations(given) == []\n"
        "print([one for one in ('httpx', 'fastavro', 'google.protobuf', 'grpc') if one in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
