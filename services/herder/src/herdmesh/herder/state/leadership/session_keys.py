"""Session keys: rotation of the key that signs the internal requests of a Connect cluster
(docs/reference/connect/herder.md, section 6.3).

Owns when a key is due: none is known, it has expired, or it has another algorithm or size than configured. Does not own
any key: its bytes are random, so an effect creates them, and nothing here needs to read them.

Departs from Connect in one thing: with a time to live of 0 a key never expires. A Java leader replaces at once a key
that was there before it; this one keeps it.

Invariant: at most one rotation is under way, under the leader's epoch, and the next is decided by what the watch has
brought since.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import (
    HerderMemory,
    Op,
    OpKind,
    SessionKeyState,
    Step,
)
from herdmesh.herder.state.model import SessionKey
from herdmesh.herder.state.model.instructions import RotateSessionKey
from herdmesh.topicstore.contract import Revision

#: Pause after a failed rotation.
RETRY_MS = 1_000


def read(step: Step, session_key: SessionKeyState, key: SessionKey | None) -> None:
    """The config store has this key; None = none."""
    ttl_ms = step.rules.session_key_ttl_ms
    session_key.set_key(key, None if key is None or ttl_ms == 0 else step.now - key.age_ms + ttl_ms)


def rotate_if_due(memory: HerderMemory) -> None:
    """Rotate the key if it is due. Call it on a leader's tick."""
    waits = memory.step.now < memory.session_key.retry_ms or not memory.stores.applied(memory.session_key.written)
    if (
        waits
        or any(op.kind is OpKind.SESSION_KEY for op in memory.call_table.ops.values())
        or not _is_due(memory.step, memory.session_key)
    ):
        return
    rules = memory.step.rules
    op = memory.call_table.op(Op(OpKind.SESSION_KEY))
    memory.step.emit(
        RotateSessionKey(op, rules.session_key_algorithm, rules.session_key_bytes, memory.leadership.epoch)
    )


def on_write_completed(session_key: SessionKeyState, revision: Revision | None) -> None:
    """A rotation was acknowledged; the watch brings the key."""
    session_key.note_written(revision)


def on_write_failed(step: Step, session_key: SessionKeyState) -> None:
    """A rotation was refused or its outcome is unknown. The watch may still bring a key; else the rotation is due
    again.
    """
    session_key.retry_from(step.now + RETRY_MS)


def _is_due(step: Step, session_key: SessionKeyState) -> bool:
    state, key, rules = session_key, session_key.key, step.rules
    if key is None or (key.algorithm, key.size_bytes) != (rules.session_key_algorithm, rules.session_key_bytes):
        return True
    return state.until_ms is not None and step.now >= state.until_ms
