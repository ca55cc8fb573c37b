"""The audit record of a mutation: the caller, the request, its time, its outcome, and the resulting revision.

Owns the choice of the parts of a request that are recorded and compared. Redaction is in `redaction`, the bytes are in
`connect.audit_topic`.

Invariant: nothing in a record depends on a secret, not even the digest that distinguishes requests: a reader of the
audit topic could guess a password by its digest. So a retry that differs only in a secret counts as the same request,
and gets the first outcome.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from herdmesh.configstore.state.redaction import redacted
from herdmesh.connect.topics import AuditRecord, Properties, audit_topic
from herdmesh.rpc import revisions
from herdmesh.topicstore.contract import NewRecord, Revision

_DIGEST_CHARACTERS = 16


def payload(asked: Any) -> str:
    """The digest that distinguishes two requests of one id: of plain JSON without secrets, members in any order."""
    canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()[:_DIGEST_CHARACTERS]


def config_change(before: Properties | None, after: Properties) -> Mapping[str, Any]:
    """The outcome of a config write: the config, and the properties whose value changed, secret or not."""
    old = before or {}
    changed = {name for name in {*old, *after} if name not in old or name not in after or old[name] != after[name]}
    return {"config": redacted(after), "changed": sorted(changed)}


def record(told: AuditRecord, topic: str) -> NewRecord:
    """The record to write; its revision is filled in when the records of its transaction have offsets."""
    key, value = audit_topic.encode(replace(told, changes={}))
    return NewRecord(key, value, topic, late=lambda revision: _with_revision(told, revision))


def _with_revision(told: AuditRecord, revision: Revision) -> bytes:
    return audit_topic.encode(replace(told, revision=revisions.to_text(revision)))[1]
