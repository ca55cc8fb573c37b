"""Restart notes: a unit's restart history as conditions of its status, and back.

Owns their text, which operators read too:
- RESTARTS: "3 restarts under config 1a2b3c4d: 2026-11-21T16:50:00.123Z ..." is the history, on every status from the
  first restart on until another config, an operator's restart or a window without one.
- RESTARTING: "4 of 10, next at 2026-11-21T17:00:05Z" while it waits, "4 of 10" while it is under way.

Invariant: `note` reads the same history from the conditions that `conditions` writes; times of RESTARTS to the
millisecond, the next one rounded up to the second. A text in another form is kept as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.herder.state.model import AutoRestart, RestartNote
from herdmesh.herder.wire import values
from herdmesh.session import wire as session_wire
from herdmesh.session.model import Condition, RunState

RESTARTING = "RESTARTING"
RESTARTS = "RESTARTS"

#: a message has at most 1,000 characters; with more restarts the earliest count as begun when the first listed one was.
_TIMES_MAX = 35
_ACCOUNT = re.compile(r"(\d{1,6}) restarts? under config ([0-9a-f]{8})(?::((?: \S+)+))?")
_NEXT = re.compile(r"(\d{1,6}) of (\d{1,6})(?:, next at (\S+))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def conditions(note: RestartNote | None, state: RunState) -> tuple[Condition, ...]:
    """The conditions of a status in `state` for the history."""
    if note is None:
        return ()
    count = len(note.attempts_ms)
    times = "".join(f" {_text(at_ms)}" for at_ms in note.attempts_ms[-_TIMES_MAX:])
    history = f"{count} restart{'' if count == 1 else 's'} under config {note.tag}{':' if times else ''}{times}"
    found = [Condition(RESTARTS, history)]
    if note.next_ms is not None or state is RunState.RESTARTING:
        message = progress(note.attempt, note.attempts_max, note.next_ms)
        found.append(Condition(RESTARTING, message, note.since_ms))
    return tuple(found)


def note(messages: Sequence[common.Condition]) -> tuple[RestartNote | None, tuple[Condition, ...]]:
    """The history in a status, and its other conditions."""
    history: re.Match[str] | None = None
    comes: tuple[re.Match[str], int | None, int | None] | None = None
    others: list[Condition] = []
    for message in messages:
        since_ms = values.clock_ms(message.since.ToMilliseconds()) if message.HasField("since") else None
        matched = _ACCOUNT.fullmatch(message.message) if message.type == RESTARTS else None
        if matched is not None and None not in [_ms(text) for text in (matched[3] or "").split()]:
            history = matched
            continue
        matched = _NEXT.fullmatch(message.message) if message.type == RESTARTING else None
        if matched is not None and (matched[3] is None or _ms(matched[3]) is not None):
            comes = matched, _ms(matched[3]), since_ms
            continue
        wait = session_wire.wait_from(message.wait) if message.HasField("wait") else None
        others.append(Condition(message.type, message.message, since_ms, wait))
    if history is None:
        return None, tuple(others)
    times = [at_ms for at_ms in (_ms(text) for text in (history[3] or "").split()) if at_ms is not None]
    count = int(history[1])
    earlier = [times[0]] * (count - len(times)) if times else []
    attempts_ms = (*earlier, *times)
    if comes is None:
        return RestartNote(history[2], attempts_ms, max(1, len(attempts_ms))), tuple(others)
    matched, next_ms, since_ms = comes
    attempt, attempts_max = int(matched[1]), int(matched[2])
    return RestartNote(history[2], attempts_ms, attempt, attempts_max, next_ms, since_ms), tuple(others)


def progress(attempt: int, attempts_max: int, next_ms: int | None) -> str:
    """ "3 of 10, next at ...", or "3 of 10"."""
    return f"{attempt} of {attempts_max}" + (f", next at {second(next_ms)}" if next_ms is not None else "")


def shown(auto_restart: AutoRestart | None) -> list[common.Condition]:
    """The condition of a unit that waits for a restart or is being restarted."""
    if auto_restart is None or not (auto_restart.under_way or auto_restart.next_ms is not None):
        return []
    message = progress(auto_restart.attempt, auto_restart.attempts_max, auto_restart.next_ms)
    return [common.Condition(type=RESTARTING, message=message)]


def second(at_ms: int) -> str:
    """A moment of the herder's clock as text, rounded up to the second."""
    moment = values.wall_moment_ms(at_ms)
    return (_EPOCH + (-(-moment // 1_000) * 1_000) * _MS).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(at_ms: int) -> str:
    moment = _EPOCH + values.wall_moment_ms(at_ms) * _MS
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms(text: str | None) -> int | None:
    """The moment by the herder's clock; None for a text that is not a time."""
    try:
        moment = datetime.fromisoformat(text) if text is not None else None
    except ValueError:
        return None
    if moment is None or moment.tzinfo is None:
        return None
    return values.clock_ms((moment - _EPOCH) // _MS)
