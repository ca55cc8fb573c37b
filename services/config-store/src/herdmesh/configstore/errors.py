"""The refusals of the config store, each with the text and the field that a caller needs to correct the request.

Owns no class of its own: every refusal is one of `herdmesh.rpc.errors`, so that it has its place in the one table
between errors and gRPC status. This module chooses the class and the text.

Invariant: imports neither gRPC nor Kafka, so the pure state may raise these errors.
"""

from __future__ import annotations

from herdmesh.rpc.errors import FieldViolation, InvalidConfig, RequestInvalid, StaleEpoch


def name_missing() -> RequestInvalid:
    """The refusal of an empty connector name."""
    return RequestInvalid("a connector's name must not be empty", "connector")


def name_differs(connector: str, in_config: object) -> InvalidConfig:
    """The refusal of a config whose own `name` differs from the connector's."""
    message = f"must be absent or equal to the connector's name {connector!r}, found {in_config!r}"
    return InvalidConfig([FieldViolation("name", message)])


def leader_missing(operation: str) -> RequestInvalid:
    """The refusal of a write that only the leading herder may do and that carries no leader token."""
    return RequestInvalid(f"{operation} needs the leader's token", "options.leader")


def no_revision(why: str) -> RequestInvalid:
    """The refusal of an expected revision for an object that has no revision."""
    return RequestInvalid(f"an expected revision cannot be given: {why}", "options.expected_revision")


def stale_epoch(given: int, leader_id: str, current: int, current_leader_id: str) -> StaleEpoch:
    """The refusal of a write of a herder that does not lead."""
    return StaleEpoch(
        f"epoch {given} of {leader_id!r} is over: epoch {current} of {current_leader_id!r} is in force",
        {"epoch": str(current), "leader_id": current_leader_id},
    )


def too_large(what: str, size_bytes: int, limit_bytes: int) -> InvalidConfig:
    """The refusal of a record that is too large for the broker; the whole group commit would fail with it."""
    message = f"takes {size_bytes} bytes as a record, at most {limit_bytes} fit"
    return InvalidConfig([FieldViolation(what, message)])
