"""The one table between errors and gRPC status, and its two directions.

Owns the code and reason of each class, the packing of details (google.rpc.Status with ErrorInfo and
BadRequest in the trailing metadata `grpc-status-details-bin`), and the restoration of the class on the client.

Invariant: every reason of `common.v1.ErrorReason` has exactly one class and one code here; errors are matched by type,
never by text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # pyright: ignore[reportMissingTypeStubs]

from herdmesh.rpc import errors

DOMAIN: Final = "herdmesh"
DETAILS_KEY: Final = "grpc-status-details-bin"

# Common peers drop trailing metadata above 8 KiB, and the status with it.
_MESSAGE_CHARACTERS_MAX: Final = 2000
_VIOLATIONS_MAX: Final = 30

_Code = grpc.StatusCode
_DetailT = TypeVar("_DetailT", error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)

#: reason's class -> code.
CODES: Final[dict[type[errors.HerdmeshError], grpc.StatusCode]] = {
    errors.InvalidConfig: _Code.INVALID_ARGUMENT,
    errors.RequestInvalid: _Code.INVALID_ARGUMENT,
    errors.ConnectorNotFound: _Code.NOT_FOUND,
    errors.TaskNotFound: _Code.NOT_FOUND,
    errors.WorkerNotFound: _Code.NOT_FOUND,
    errors.LeaseNotFound: _Code.NOT_FOUND,
    errors.PluginNotFound: _Code.NOT_FOUND,
    errors.HistoryNotFound: _Code.NOT_FOUND,
    errors.LoggerNotFound: _Code.NOT_FOUND,
    errors.StatusNotFound: _Code.NOT_FOUND,
    errors.RequestIdUnknown: _Code.NOT_FOUND,
    errors.TopicTrackingDisabled: _Code.FAILED_PRECONDITION,
    errors.OffsetsRefused: _Code.FAILED_PRECONDITION,
    errors.DeadLettersRefused: _Code.FAILED_PRECONDITION,
    errors.ConnectorExists: _Code.ALREADY_EXISTS,
    errors.ConnectorNotStopped: _Code.FAILED_PRECONDITION,
    errors.Superseded: _Code.FAILED_PRECONDITION,
    errors.StaleEpoch: _Code.FAILED_PRECONDITION,
    errors.StatusNewer: _Code.FAILED_PRECONDITION,
    errors.NotLeader: _Code.FAILED_PRECONDITION,
    errors.ForeignWriter: _Code.FAILED_PRECONDITION,
    errors.RequestIdExpired: _Code.FAILED_PRECONDITION,
    errors.RevisionMismatch: _Code.ABORTED,
    errors.WriteOutcomeUnknown: _Code.ABORTED,
    errors.RevisionCompacted: _Code.OUT_OF_RANGE,
    errors.RevisionInFuture: _Code.OUT_OF_RANGE,
    errors.RevisionForeign: _Code.OUT_OF_RANGE,
    errors.StoreReplaying: _Code.UNAVAILABLE,
    errors.NotWriter: _Code.UNAVAILABLE,
    errors.WriterFenced: _Code.UNAVAILABLE,
    errors.NoLeader: _Code.UNAVAILABLE,
    errors.NoWorker: _Code.UNAVAILABLE,
    errors.ShuttingDown: _Code.UNAVAILABLE,
    errors.TopicRecreated: _Code.UNAVAILABLE,
    errors.StoreUnauthorized: _Code.UNAVAILABLE,
    errors.Unreachable: _Code.UNAVAILABLE,
    errors.WatchOverflow: _Code.RESOURCE_EXHAUSTED,
    errors.QueueFull: _Code.RESOURCE_EXHAUSTED,
    errors.Timeout: _Code.DEADLINE_EXCEEDED,
    errors.RecordCorrupt: _Code.DATA_LOSS,
    errors.NotBuilt: _Code.UNIMPLEMENTED,
    errors.Internal: _Code.INTERNAL,
}

_BY_REASON: Final = {error_class.reason: error_class for error_class in CODES}

# The meaning of a status without our details: it comes from gRPC itself or from a proxy on the way.
_BARE_CODES: Final[dict[grpc.StatusCode, type[errors.HerdmeshError]]] = {
    _Code.UNAVAILABLE: errors.Unreachable,
    _Code.DEADLINE_EXCEEDED: errors.Timeout,
    _Code.CANCELLED: errors.Unreachable,
    _Code.UNIMPLEMENTED: errors.NotBuilt,
    _Code.INVALID_ARGUMENT: errors.RequestInvalid,
}


@functools.cache
def store_errors() -> dict[type[Exception], type[errors.HerdmeshError]]:
    """The topic store's own errors -> the class sent to the caller. Errors of its start never reach a caller, except
    missing permissions, which may also occur later.

    Imported at the first error of a store: clients, which have none, then load no Kafka library.
    """
    from herdmesh.topicstore import errors as store

    return {
        store.StoreReplaying: errors.StoreReplaying,
        store.NotWriter: errors.NotWriter,
        store.WriterFenced: errors.WriterFenced,
        store.QueueFull: errors.QueueFull,
        store.RecordTooLarge: errors.RequestInvalid,
        store.NotAuthorized: errors.StoreUnauthorized,
        store.TopicRecreated: errors.TopicRecreated,
        store.StoreClosed: errors.ShuttingDown,
        store.WriteOutcomeUnknown: errors.WriteOutcomeUnknown,
        store.RevisionForeign: errors.RevisionForeign,
        store.RevisionCompacted: errors.RevisionCompacted,
        store.RevisionInFuture: errors.RevisionInFuture,
        store.WatchOverflow: errors.WatchOverflow,
    }


def as_herdmesh_error(error: BaseException) -> errors.HerdmeshError | None:
    """The error to send for `error`; None for an unexpected one (a bug)."""
    if isinstance(error, errors.HerdmeshError):
        return error if type(error) in CODES else None
    if isinstance(error, TimeoutError):
        return errors.Timeout("the server worked on it")
    if not type(error).__module__.startswith("herdmesh.topicstore."):
        return None
    for store_class in type(error).__mro__:
        if store_class in store_errors():
            return store_errors()[store_class].restore(str(error), _store_metadata(error), ())
    return None


def _store_metadata(error: BaseException) -> dict[str, str]:
    from herdmesh.rpc import revisions
    from herdmesh.topicstore.errors import NotAuthorized, WatchOverflow

    if isinstance(error, NotAuthorized):
        return {"operation": error.operation, "resource": error.resource}
    return {"last_revision": revisions.to_text(error.last)} if isinstance(error, WatchOverflow) else {}


def pack(error: errors.HerdmeshError) -> tuple[grpc.StatusCode, str, bytes]:
    """Code, message and the serialized google.rpc.Status for `DETAILS_KEY`, short enough for trailing metadata."""
    message = error.message[:_MESSAGE_CHARACTERS_MAX]
    return CODES[type(error)], message, _details(error, message, error.violations[:_VIOLATIONS_MAX])


def details(error: errors.HerdmeshError) -> bytes:
    """The whole error as a serialized google.rpc.Status, for a field of a message; `from_details` restores it."""
    return _details(error, error.message, error.violations)


def _details(error: errors.HerdmeshError, message: str, violations: Iterable[errors.FieldViolation]) -> bytes:
    status = status_pb2.Status(code=_number(CODES[type(error)]), message=message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)
    status.details.add().Pack(info)
    request = error_details_pb2.BadRequest()
    for violation in violations:
        request.field_violations.add(field=violation.field, description=violation.message)
    if request.field_violations:
        status.details.add().Pack(request)
    return status.SerializeToString()


def unpack(
    code: grpc.StatusCode, message: str, trailing: Iterable[tuple[str, str | bytes]] | None
) -> errors.HerdmeshError:
    """The error that a status stands for; never fails. A status without our details is read by its code alone."""
    for key, value in trailing or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            found = from_details(value)
            if found is not None:
                return found
    bare = _BARE_CODES.get(code, errors.Internal)
    return bare.restore(f"{code.name}: {message}", {}, ())


def from_details(value: bytes) -> errors.HerdmeshError | None:
    """The error of a serialized google.rpc.Status; None for one that is not ours."""
    try:
        status = status_pb2.Status.FromString(value)
        info = _first(status.details, error_details_pb2.ErrorInfo())
        request = _first(status.details, error_details_pb2.BadRequest())
    except DecodeError:
        return None
    if info is None or info.domain != DOMAIN or info.reason not in _BY_REASON:
        return None
    violations = [
        errors.FieldViolation(item.field, item.description) for item in (request.field_violations if request else ())
    ]
    return _BY_REASON[info.reason].restore(status.message, dict(info.metadata), violations)


def _first(details: Iterable[AnyMessage], message: _DetailT) -> _DetailT | None:
    for detail in details:
        if detail.Unpack(message):
            return message
    return None


def _number(code: grpc.StatusCode) -> int:
    number: int = code.value[0]
    return number
