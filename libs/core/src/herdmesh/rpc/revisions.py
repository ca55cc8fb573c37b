"""`Revision` on the wire and as text.

Owns the three spellings of a revision (topicstore dataclass, proto message, text for error metadata and files). The
meaning of a revision is in `herdmesh.topicstore.contract`.

Invariant: each spelling converts to each other without loss; an unset message is `None`.
"""

from __future__ import annotations

from herdmesh.api.common.v1 import revision_pb2
from herdmesh.topicstore.contract import Revision


def to_proto(revision: Revision | None) -> revision_pb2.Revision:
    """The message; an empty one for None."""
    if revision is None:
        return revision_pb2.Revision()
    return revision_pb2.Revision(store_id=revision.store_id, next_offsets=revision.next_offsets)


def from_proto(message: revision_pb2.Revision) -> Revision | None:
    """None when the message is unset (no store id)."""
    if not message.store_id:
        return None
    return Revision(message.store_id, tuple(message.next_offsets))


def meta(revision: Revision | None) -> revision_pb2.ResponseMeta:
    """The meta at the start of a response; without revision for None."""
    if revision is None:
        return revision_pb2.ResponseMeta()
    return revision_pb2.ResponseMeta(revision=to_proto(revision))


def to_text(revision: Revision | None) -> str:
    """`<store id>@<offset>,<offset>,...`; "" for None."""
    if revision is None:
        return ""
    return f"{revision.store_id}@{','.join(map(str, revision.next_offsets))}"


def from_text(text: str) -> Revision | None:
    """The inverse of `to_text`. Raises ValueError on anything else."""
    if not text:
        return None
    store_id, at, offsets = text.rpartition("@")
    if not at or not store_id:
        raise ValueError(f"not a revision: {text!r}")
    return Revision(store_id, tuple(int(item) for item in offsets.split(",")) if offsets else ())
