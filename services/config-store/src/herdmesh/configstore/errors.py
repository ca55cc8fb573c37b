"""The refusals of the config store, each with the words and the field a caller needs to put it right.

Owns no class of its own: every refusal is one of `herdmesh.rpc.errors`, so that it has its place in the one table
between errors and gRPC status. This module says which, and how it is worded.

Invariant: imports neither gRPC nor Kafka, so the pure state may raise what is built here.
"""

from __future__ import annotations

from herdmesh.rpc.errors import FieldViolation, InvalidConfig, RequestInvalid, StaleEpoch


def name_missing() -> RequestInvalid:
    """An empty connector name."""
    return RequestInvalid("a connector's name must not be empty", "connector")


def name_differs(connector: str, in_config: object) -> InvalidConfig:
    """The config's own `name` is not the connector's."""
    message = f"must be absent or equal to the connector's name {connector!r}, found {in_config!r}"
    return InvalidConfig([FieldViolation("name", message)])


def leader_missing(operation: str) -> RequestInvalid:
    """A write that only the leading herder may do, without its token."""
    return RequestInvalid(f"{operation} needs the leader's token", "options.leader")


def no_revision(why: str) -> RequestInvalid:
    """An expected revision of something that has none."""
    return RequestInvalid(f"there is no revision to expect: {why}", "options.expected_revision")


def stale_epoch(given: int, leader_id: str, current: int, current_leader_id: str) -> StaleEpoch:
    """A write of a herder that does not lead."""
    return StaleEpoch(
        f"epoch {given} of {leader_id!r} is over: epoch {current} of {current_leader_id!r} is in force",
        {"epoch": str(current), "leader_id": current_leader_id},
    )


def too_large(what: str, size_bytes: int, limit_bytes: int) -> InvalidConfig:
    """A record the broker would refuse, and with it the transaction of everybody in the same group commit."""
    message = f"takes {size_bytes} bytes as a record, at most {limit_bytes} fit"
    return InvalidConfig([FieldViolation(what, message)])
