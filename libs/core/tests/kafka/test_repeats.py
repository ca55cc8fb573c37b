"""Filter of repeated log lines of a Kafka client whose broker is unreachable."""

from __future__ import annotations

import logging

from herdmesh.kafka.log_dedup import PAUSE_S, Repeats

_REFUSED = (
    "FAIL [connector-consumer-a-0#consumer-3] [thrd:127.0.0.1:9092/bootstrap]: Connect to ipv4#127.0.0.1:9092 failed"
)


def _record(text: str) -> logging.LogRecord:
    return logging.LogRecord("tests.repeats", logging.ERROR, "", 0, "%s", (text,), None)


def test_a_repeated_connection_failure_is_logged_at_once_and_then_rarely_with_a_count() -> None:
    now = [100.0]
    repeats = Repeats(lambda: now[0])
    told: list[str] = []
    for tries in range(1_000):
        now[0] = 100.0 + tries * PAUSE_S / 400
        record = _record(_REFUSED)
        if repeats.filter(record):
            told.append(record.getMessage())
    assert told == [_REFUSED, *[f"{_REFUSED} (399 similar messages since {PAUSE_S:.0f} s ago)"] * 2]


def test_lines_of_other_connections_other_clients_and_other_kinds_are_logged() -> None:
    repeats = Repeats(lambda: 100.0)
    texts = [
        _REFUSED,
        _REFUSED.replace("a-0", "a-1"),
        _REFUSED.replace("bootstrap", "1"),
        "ADDOFFSETS [connector-producer-a-0#producer-2] [thrd:main]: Connection lost",
        "ADDOFFSETS [connector-producer-a-0#producer-2] [thrd:main]: Connection lost",
    ]
    assert all(repeats.filter(_record(text)) for text in texts)
    assert not repeats.filter(_record(_REFUSED))


def test_at_debug_level_every_line_is_logged() -> None:
    logger = logging.getLogger("tests.repeats")
    logger.setLevel(logging.DEBUG)
    try:
        repeats = Repeats(lambda: 100.0)
        assert all(repeats.filter(_record(_REFUSED)) for _ in range(3))
    finally:
        logger.setLevel(logging.NOTSET)


def test_old_connections_are_forgotten_so_memory_stays_bounded() -> None:
    now = [0.0]
    repeats = Repeats(lambda: now[0])
    for number in range(5_000):
        now[0] = number * PAUSE_S / 100
        assert repeats.filter(_record(_REFUSED.replace("a-0", f"a-{number}")))
    assert len(repeats._told) <= 1_000  # pyright: ignore[reportPrivateUsage]
