"""The progress of offset changes, as the audit topic has it: what is remembered, and returned to a retry.

Owns the outcome of RecordOffsets as plain JSON, and which changes are the last recorded step of their connector. The
offsets themselves are Kafka's and the workers'; the rules of a change are the herder's.

Invariant: a change that was begun and did not end counts as overtaken as soon as anything else is recorded of its
connector, except the count of its producers, which gives it no tasks. So does a change whose connector Java workers
wrote since, which the audit topic does not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from herdmesh.configstore.state.mutations import RecordOffsets
from herdmesh.connect.topics import AuditRecord

if TYPE_CHECKING:
    from herdmesh.configstore.state.config import ConfigState

OPERATION: Final = "RecordOffsets"
_HARMLESS: Final = "PutTaskCount"


class Begun(NamedTuple):
    """A change that was begun: its request, and the offset in the config topic after what was written with it, 0 = that
    is on its way, or older than such records tell."""

    request_id: str
    revision: int


def outcome(mutation: RecordOffsets) -> Mapping[str, Any]:
    """What the audit record keeps of a change."""
    return {"ended": mutation.ended, "told": dict(mutation.response)}


def has_ended(known: Mapping[str, Any]) -> bool:
    """By an outcome that `outcome` made."""
    return known.get("ended") is True


def again(state: ConfigState, connector: str, request_id: str, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a retry is told."""
    overtaken = not has_ended(known) and not _is_last(state, connector, request_id)
    return {**known, "repeated": True, "overtaken": overtaken}


def ends(record: AuditRecord) -> bool:
    """True for what the caller of a change was told: it is no change of its own."""
    return record.operation == OPERATION and has_ended(record.outcome)


def begun_after(begun: Mapping[str, Begun], record: AuditRecord, revision: int) -> Mapping[str, Begun]:
    """The changes that were begun last, by connector, once `record` is applied, which was written at `revision`."""
    name = record.connector
    if record.operation == OPERATION and not ends(record):
        return {**begun, name: Begun(record.request_id, revision)}
    if name not in begun or record.operation == _HARMLESS:
        return begun
    return {other: one for other, one in begun.items() if other != name}


def _is_last(state: ConfigState, name: str, request_id: str) -> bool:
    begun, connector = state.offsets_begun.get(name), state.connector(name)
    if begun is None or begun.request_id != request_id or connector.foreign or connector.config is None:
        return False
    written = max(connector.config_revision, connector.target_state_revision, connector.tasks_revision)
    return not begun.revision or written <= begun.revision
