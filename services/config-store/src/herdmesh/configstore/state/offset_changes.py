"""The progress of offset changes, from the audit topic: what is kept, and returned to a retry.

Owns the outcome of RecordOffsets as plain JSON, and the set of changes that are the last recorded step of their
connector. The offsets themselves are in Kafka, the workers change them; the rules of a change are the herder's.

Invariant: a change that began and did not end counts as overtaken as soon as any other step of its connector is
recorded, except the count of its producers, which starts no tasks. A later write of Java workers to the connector
overtakes it too; the audit topic does not show such writes.
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
    """A change that began: its request id, and the offset in the config topic after its records. 0 = those are in
    flight, or the release that wrote it recorded no offset.
    """

    request_id: str
    revision: int


def outcome(mutation: RecordOffsets) -> Mapping[str, Any]:
    """The outcome that the audit record of a change keeps."""
    return {"ended": mutation.ended, "told": dict(mutation.response)}


def has_ended(known: Mapping[str, Any]) -> bool:
    """True if an outcome made by `outcome` is of a change that ended."""
    return known.get("ended") is True


def again(state: ConfigState, connector: str, request_id: str, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The outcome that is returned to a retry."""
    overtaken = not has_ended(known) and not _is_last(state, connector, request_id)
    return {**known, "repeated": True, "overtaken": overtaken}


def ends(record: AuditRecord) -> bool:
    """True for the record of a change's end, which is no change of its own."""
    return record.operation == OPERATION and has_ended(record.outcome)


def begun_after(begun: Mapping[str, Begun], record: AuditRecord, revision: int) -> Mapping[str, Begun]:
    """The changes that began last, by connector, after `record`, written at `revision`, is applied."""
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
