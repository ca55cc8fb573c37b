"""Record format of the audit topic: one record per decided control request (docs/design/stores.md, section 3).

Owns the record and its codec. Does not redact: the config store passes `changes` with secrets already replaced.

Invariant: `decode(*encode(record)) == record`. The key is the request id, so a retry finds the outcome of the first
attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from herdmesh.connect.errors import DataError
from herdmesh.connect.json_text import jackson
from herdmesh.connect.topics.decoding import Undecodable, key_bytes, key_text


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Caller, request, time and outcome of a decided control request.

    `time_ms` is the writer's wall clock, epoch milliseconds. `operation` names the RPC. `connector` is "" when the
    request concerns none. `outcome` and `changes` are plain JSON; secrets in `changes` are redacted by the caller.
    `payload` is a digest of the request, "" = not known. `revision` is the revision after the change, as text, "" = not
    known yet.
    """

    request_id: str
    caller: str
    time_ms: int
    operation: str
    connector: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    payload: str = ""
    revision: str = ""


def encode(record: AuditRecord) -> tuple[bytes, bytes]:
    """Key (the request id) and value."""
    return key_bytes(record.request_id), jackson.dumps(
        {
            "caller": record.caller,
            "time_ms": record.time_ms,
            "operation": record.operation,
            "connector": record.connector,
            "outcome": dict(record.outcome),
            "changes": dict(record.changes),
            "payload": record.payload,
            "revision": record.revision,
        }
    )


def decode(key: bytes | None, value: bytes | None) -> AuditRecord | Undecodable:
    """Read one record; a record that Herdmesh did not write is `Undecodable`."""
    try:
        members = jackson.loads(value)
    except DataError as error:
        return Undecodable(str(error), "audit")
    if key is None or not isinstance(members, dict):
        return Undecodable("the key is null or the value is not a JSON object", "audit")
    fields = cast("dict[str, Any]", members)
    payload, revision = fields.get("payload", ""), fields.get("revision", "")  # Herdmesh 0.1 wrote neither of them
    texts = [*(fields.get(name) for name in ("caller", "operation", "connector")), payload, revision]
    maps = [fields.get(name) for name in ("outcome", "changes")]
    time_ms = fields.get("time_ms")
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(item, dict) for item in maps):
        return Undecodable("a member is missing or of another type", "audit")
    if type(time_ms) is not int:
        return Undecodable("'time_ms' is not an integer", "audit")
    return AuditRecord(
        key_text(key), fields["caller"], time_ms, fields["operation"], fields["connector"],
        fields["outcome"], fields["changes"], payload, revision,
    )  # fmt: skip
