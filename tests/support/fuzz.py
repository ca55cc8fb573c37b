"""Invalid raw records: a seeded stream of keys and values for either topic.

Owns the generator: recorded records of Java's and of ours, damaged; JSON made to be awkward; keys that are nearly keys.
About as many are readable as not, so that events with a meaning under Java's rules keep happening in between.
Invariant: one seed is one stream; no key is null (a compacted topic refuses it) and no record is larger than a broker
accepts by default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, cast

from tests.support import golden

Raw = tuple[bytes, bytes | None]

#: Our records, of which Java's recordings have none. Epochs are old: a fuzzed one must not take the leadership.
_OUR_CONFIG_RECORDS: tuple[Raw, ...] = (
    (
        b"herdmesh-connector-gold-src",
        b'{"incarnation":"i","applied_config":{"name":"gold-src"},"task_count":1,"task_digests":["d"],'
        b'"task_config_generation":1,"deleted":false,"config_digest":"d","revisions":{"config":3,"tasks":0},'
        b'"stray_digests":{"1":"d"}}',
    ),
    (b"herdmesh-connector-gone", b'{"incarnation":"","applied_config":null,"task_count":0,"task_digests":[],'
     b'"task_config_generation":0,"deleted":true,"config_digest":"","revisions":{}}'),
    (b"herdmesh-leader", b'{"epoch":0,"leader_id":"h","leader_address":"h:1","next_generation":1001}'),
    (b"herdmesh-writer", b"{}"),
    (b"tasks-fencing-gold-src", b'{"task-count":2}'),
    (b"logger-cluster-root", b'{"level":"DEBUG"}'),
    (b"restart-connector-gold-src", b'{"include-tasks":true,"only-failed":false}'),
)  # fmt: skip
_OUR_STATUS_RECORDS: tuple[Raw, ...] = (
    (
        b"status-task-gold-src-0",
        b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":3,"version":null,"conditions":'
        b'[{"type":"STALLED","message":"m","since_ms":1}],"commit_scope":{"group":"g","topics":["t"]},"worker_incarnation":"i"}',
    ),
    (b"herdmesh-writer", b"{}"),
)
_CONFIG_KEYS = (
    "connector-", "connector", "connector-x", "target-state-", "task-x-0", "task-x", "task-", "task--1", "task-x--1",
    "task-x-+1", "task-x-01", "task-x-1-", "task-x-2147483648", "task-x--2147483648", "task-x-\u0661", "task-x-1.0",
    "task-x-\U0001d7d9", "task-x- 1", "task-x-0x1", "commit-", "commit-x", "commit-x-", "restart-connector-",
    "tasks-fencing-", "tasks-fencing-x", "session-key", "session-key-x", "logger-cluster-", "herdmesh-connector-",
    "herdmesh-leader-x", "herdmesh-", "", "-", "Connector-x", "connector-\u0000", "connector-\uffff",
)  # fmt: skip
_STATUS_KEYS = (
    "status-", "status-connector-", "status-connector", "status-connector-x", "status-task-", "status-task-x",
    "status-task-x-0", "status-task-x--1", "status-task--1", "status-task-x-+1", "status-task-x-1-",
    "status-task-x-2147483648", "status-task-x-#", "status-task-x-\u0661", "status-topic-", "status-topic-:connector-",
    "status-topic-t:connector-", "status-topic-:connector-x", "status-topic-t:connector-x",
    "status-topic-t:xxxxxxxxxx-y", "status-topic-t:", "status-topic-t:connector-x:connector-y", "status-unknown", "",
)  # fmt: skip
_WRONG: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, -(2**31) - 1, 2**32 + 1, 2**63, -(2**64), 1.0, 1e308, 0.1, "", "x", "1",
    "\ud800", "\u0000", [], [1], {}, {"a": 1}, {"properties": {}}, "RUNNING", "STOPPED", "A" * 300,
)  # fmt: skip
_AWKWARD: tuple[bytes, ...] = (
    b"", b" ", b"\t\r\n ", b"null", b"null ", b"nullx", b"null,", b"true", b"0", b"007", b"-", b"-0", b"+1", b".5",
    b"1.", b"1e999", b"-1e999", b"NaN", b"Infinity", b"-Infinity", b"{", b"}", b"{}", b"[]", b"[", b'"', b'""', b"'x'",
    b"{}{}", b"{}\xff", b"\xff{}", b"{}x", b"[]x", b'"a"x', b"1x", b"1 x", b'{"a"}', b"{a:1}", b'{"a":1 "b":2}',
    b"[1,]", b"[,1]", b"/* */{}", b"{}//", b"\x00", b"\x00\x00\x00", b"{\x00}", b'{"a":"\x01"}', b'{"a":"\\x41"}',
    b'{"a":"\\u12"}', b'{"a":"\\ud800"}', b'{"a":"\\ud83d\\ude00"}', b'{"a":"\xed\xa0\x80"}',
    b"\xef\xbb\xbf{}", b"\xef\xbb\xbf ", b"\x00 ", b"{\x00}\x00x", b"\x00{\x00}\xd8", b"\x00\x00\xfe\xff",
    b"\xef\xbb\xbf", b"\xfe\xff", b"\xff\xfe", b"\xff\xfe{\x00}\x00", b"\xfe\xff\x00{\x00}",
    b"[" * 1_001 + b"]" * 1_001, b"[" * 1_000 + b"]" * 1_000, b"[" * 100_000, b'{"a":' * 999 + b"{}" + b"}" * 999,
    b'{"a":' * 1_001, b"9" * 1_000, b"9" * 1_001, b'{"tasks":' + b"1" * 400 + b"}", b'{"tasks":1e2}', b'{"tasks":01}',
    b'{"tasks":1,"tasks":2}', b'{"properties":{},"properties":{"a":"b"}}', b'{"properties":null}', b'{"properties":[]}',
    b'{"properties":{"a":{"b":[1,2.5,null,true]}}}', b'{"properties":{"a":' + b"[" * 998 + b"]" * 998 + b"}}",
    b'{"properties":{"a":' + b'{"b":' * 998 + b"{}" + b"}" * 998 + b"}}",
    b'{"state":"PAUSED","state.v2":7}', b'{"state.v2":"NO","state":"PAUSED"}',
    b'{"' + b"n" * 50_001 + b'":1}', b'{"properties":{"' + b"n" * 50_000 + b'":"1"}}',
)  # fmt: skip
_HUGE_EVERY = 8_000
_HUGE_BYTES = 900_000


def config_stream(seed: int, count: int) -> Iterator[Raw]:
    """`count` records for the config topic."""
    return _stream(Random(seed), count, [*_recorded("config-topic.jsonl"), *_OUR_CONFIG_RECORDS], _CONFIG_KEYS)


def status_stream(seed: int, count: int) -> Iterator[Raw]:
    """`count` records for the status topic."""
    return _stream(Random(seed), count, [*_recorded("status-topic.jsonl"), *_OUR_STATUS_RECORDS], _STATUS_KEYS)


def _recorded(name: str) -> list[Raw]:
    found = (golden.key_and_value(line) for line in golden.lines(name))
    return list(dict.fromkeys((key, value) for key, value in found if key is not None))


def _stream(chance: Random, count: int, corpus: Sequence[Raw], keys: Sequence[str]) -> Iterator[Raw]:
    texts = [key.encode("utf-8", "replace") for key in keys]
    parsed: list[tuple[bytes, Any]] = [(key, json.loads(value)) for key, value in corpus if value]
    for number in range(count):
        key, value = chance.choice(corpus)
        kind = chance.randrange(16)
        if number % _HUGE_EVERY == _HUGE_EVERY - 1:
            value = _huge(chance)
        elif kind < 2:
            value = _flipped(chance, value or b"{}")
        elif kind == 2:
            key = _flipped(chance, key)
        elif kind == 3:
            value = (value or b"")[: chance.randint(0, len(value or b""))]
        elif kind == 4:
            value = _spliced(chance, value or b"", chance.choice(corpus)[1] or b"")
        elif kind == 5:
            value = chance.choice(corpus)[1]
        elif kind == 6:
            value = chance.choice(_AWKWARD)
        elif kind == 7:
            key = chance.choice(texts)
        elif kind == 8:
            key, value = chance.choice(texts), chance.choice(_AWKWARD)
        elif kind == 9:
            key, members = chance.choice(parsed)
            value = _written(chance, _wrong_somewhere(chance, members))
        elif kind == 10:
            value = chance.randbytes(chance.randint(0, 60))
            key = chance.randbytes(chance.randint(0, 20)) if chance.random() < 0.5 else key
        yield key, value


def _flipped(chance: Random, data: bytes) -> bytes:
    if not data:
        return data
    flipped = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
    return bytes(flipped)


def _spliced(chance: Random, one: bytes, other: bytes) -> bytes:
    return one[: chance.randint(0, len(one))] + other[chance.randint(0, len(other)) :]


def _wrong_somewhere(chance: Random, value: Any) -> Any:
    """`value` with one member, at any depth, of another type, removed, or added."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        members = dict(cast("dict[str, Any]", value))
        name = chance.choice(sorted(members))
        what = chance.randrange(4)
        if what == 0:
            del members[name]
        elif what == 1:
            members[f"more-{chance.randrange(9)}"] = chance.choice(_WRONG)
        else:
            members[name] = _wrong_somewhere(chance, members[name]) if what == 2 else chance.choice(_WRONG)
        return members
    return chance.choice(_WRONG)


def _written(chance: Random, value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"))
    how = chance.randrange(8)
    if how == 0:
        return text.encode("utf-16")
    if how == 1:
        return text.encode(chance.choice(("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8-sig")))
    if how == 2:
        return json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return text.encode() + (chance.choice((b" ", b"x", b"\xff", b"}")) if how == 3 else b"")


def _huge(chance: Random) -> bytes:
    what = chance.randrange(4)
    if what == 0:
        return b'{"properties":{"a":"' + b"x" * _HUGE_BYTES + b'"}}'
    if what == 1:
        return b"[" * _HUGE_BYTES
    if what == 2:
        return b'{"tasks":' + b"9" * _HUGE_BYTES + b"}"
    return chance.randbytes(_HUGE_BYTES)
