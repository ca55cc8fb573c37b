"""The key that signs the internal requests of a Connect cluster, made anew by the leader (reference herder 6.3).

Owns when a key is due: none is known, its time is over, or it is not of the algorithm and size that are wanted. Owns no
key: its bytes are random, so an effect makes them, and nothing here needs to read them.

Departs from Connect in one thing: with a time to live of 0 a key never expires, also one that was there before this
herder, which a Java leader replaces at once.

Invariant: at most one rotation is under way, under the leader's epoch, and the next is judged by what the watch has
brought since.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import Mesh, Op, OpKind
from herdmesh.herder.state.model import SessionKey
from herdmesh.herder.state.model.instructions import RotateSessionKey
from herdmesh.topicstore.contract import Revision

#: Pause after a rotation that failed.
RETRY_MS = 1_000


def read(mesh: Mesh, key: SessionKey | None) -> None:
    """The config store has this key; None = none."""
    mesh.session_key = key
    ttl_ms = mesh.rules.session_key_ttl_ms
    mesh.session_key_until_ms = None if key is None or ttl_ms == 0 else mesh.now - key.age_ms + ttl_ms


def rotate_if_due(mesh: Mesh) -> None:
    """Called on a leader's tick."""
    waits = mesh.now < mesh.session_key_retry_ms or not mesh.applied(mesh.session_key_written)
    if waits or any(op.kind is OpKind.SESSION_KEY for op in mesh.ops.values()) or not _is_due(mesh):
        return
    rules = mesh.rules
    op = mesh.op(Op(OpKind.SESSION_KEY))
    mesh.out.append(RotateSessionKey(op, rules.session_key_algorithm, rules.session_key_bytes, mesh.epoch))


def written(mesh: Mesh, revision: Revision | None) -> None:
    """A rotation was acknowledged; the watch brings the key."""
    mesh.session_key_written = revision


def write_failed(mesh: Mesh) -> None:
    """A rotation was refused or its outcome never told; the watch may still bring a key, else it is due again."""
    mesh.session_key_retry_ms = mesh.now + RETRY_MS


def _is_due(mesh: Mesh) -> bool:
    key, rules = mesh.session_key, mesh.rules
    if key is None or (key.algorithm, key.size_bytes) != (rules.session_key_algorithm, rules.session_key_bytes):
        return True
    return mesh.session_key_until_ms is not None and mesh.now >= mesh.session_key_until_ms
