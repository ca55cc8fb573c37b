"""Errors of an author's code with unusual texts: each gets a message, a trace and a class."""

from __future__ import annotations

import pytest

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import RecordError
from herdmesh.engine.bad_records import error_reports
from herdmesh.engine.runtime.failure import MESSAGE_CHARS_MAX, TRACE_CHARS_MAX, classify


class Mute(Exception):
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Endless(Exception):
    """An error whose text never ends."""

    def __str__(self) -> str:
        return str(self)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as found:  # noqa: BLE001 - returns the raised error
        return found


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Mute(), "Mute: its text cannot be formatted: RuntimeError"),
        (Endless(), "Endless: its text cannot be formatted: RecursionError"),
        (ValueError(), "ValueError"),
        (ValueError("  "), "ValueError"),
        (ValueError("a\n\tb"), "ValueError: a b"),
        (ValueError("a\ud83d"), "ValueError: a\\ud83d"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (MemoryError("full"), "MemoryError: full"),
        (ExceptionGroup("two", [ValueError("a"), Mute()]),
         "ExceptionGroup: two (2 sub-exceptions): ValueError: a; Mute: its text cannot be formatted: RuntimeError"),
        (BaseExceptionGroup("end", [SystemExit(3)]), "BaseExceptionGroup: end (1 sub-exception): SystemExit: 3"),
    ],
    ids=range(11),
)  # fmt: skip
def test_an_error_with_an_unusual_text_is_reported(error: BaseException, said: str) -> None:
    message, trace, _ = classify(raised(error))
    assert message == said
    assert type(error).__name__ in trace
    (message + trace).encode()


def test_an_error_message_is_cut_to_fit_into_a_status() -> None:
    message, trace, found = classify(raised(ValueError("x" * 5_000_000 + "the end")))
    assert len(message) < MESSAGE_CHARS_MAX + 100
    assert len(trace) < TRACE_CHARS_MAX + 100
    assert "characters left out" in message
    assert message.endswith("the end")
    assert found is ErrorClass.UNKNOWN


def test_a_record_failure_without_a_text_is_logged_and_dead_lettered() -> None:
    for error in (Mute(), Endless()):
        told = str(RecordError("VALUE_CONVERTER", "x", "t", 0, 5, raised(error)))
        assert "for the record at topic 't', partition 0, offset 5: its text cannot be formatted" in told
        assert "its text cannot be formatted" in told
        assert "its text cannot be formatted" in (error_reports.message_of(error) or "")
        assert "its text cannot be formatted" in error_reports.stack_trace(raised(error))
