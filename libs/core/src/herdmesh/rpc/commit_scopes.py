"""`CommitScope` on the wire.

Owns the mapping of `common.v1.CommitScope`. The meaning of a scope is in
`herdmesh.connect.topics.commit_scope`.

Invariant: `from_proto(to_proto(scope)) == scope`; None is an unset field, for which the caller checks.
"""

from __future__ import annotations

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.connect.topics import CommitScope
from herdmesh.rpc import java_values


def to_proto(scope: CommitScope | None) -> connector_pb2.CommitScope | None:
    """The message; None leaves the field unset."""
    if scope is None:
        return None
    return connector_pb2.CommitScope(
        group=java_values.text(scope.group),
        topics=map(java_values.text, scope.topics),
        elsewhere=map(java_values.text, scope.elsewhere),
        topic_ids=scope.topic_ids,
    )


def from_proto(message: connector_pb2.CommitScope) -> CommitScope:
    """The scope of a message that is set."""
    ids = dict(zip(message.topics, message.topic_ids, strict=False))
    return CommitScope.of(message.group, message.topics, ids).beside(message.elsewhere)
