"""librdkafka's own calls, and the loops over them that are in C (`native.c`, ADR 0016).

Owns where both are found, the rows they share with Python, and the handle of a client. What is sent or read by them is
`column_queue`'s and `intake`'s.

confluent-kafka makes an object of each message, and holds the interpreter's lock meanwhile. The handle of its clients
is private to it: the first field of their objects. So this is done with the versions that were tried (`_TRIED`), by
tests that send and read records, and with no other.

Invariant: memory is read through the handle of an open client of a tried version, or not at all.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
import numpy as np
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

_TRIED = frozenset(("2.16.1",))
"""A version belongs here when the engine's tests of queueing and reading pass with it, on every platform it is used
on."""
_HANDLE_AT = object.__basicsize__
"""Where a client has librdkafka's handle: behind what every Python object begins with."""
_POINTER_BYTES = 8
_LOOPS = Path(__file__).with_name(f"_native{sysconfig.get_config_var('EXT_SUFFIX')}")
"""Made where Herdmesh is installed (libs/core/setup.py)."""

Rows = np.ndarray[Any, Any]
ROW = np.dtype(
    [
        ("value", "u8"), ("value_length", "i8"), ("key", "u8"), ("key_length", "i8"), ("offset", "i8"),
        ("time_ms", "i8"), ("topic", "u8"), ("partition", "i4"), ("error", "i4"), ("time_kind", "i4"),
        ("headers", "i4"),
    ]
)  # fmt: skip
"""`row` of native.c."""


class Summary(ctypes.Structure):
    """`summary` of native.c: of all rows that were taken at once."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("value_bytes", "key_bytes", "values", "keys", "headers", "errors", "strangers")
    )


_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
#: What librdkafka offers of this: the type of the answer, and of what is given.
_LIBRDKAFKA: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_topic_new": (_P, [_P, ctypes.c_char_p, _P]),
    "rd_kafka_topic_destroy": (None, [_P]),
    "rd_kafka_topic_name": (ctypes.c_char_p, [_P]),
    "rd_kafka_last_error": (_I, []),
    "rd_kafka_produce_batch": (_I, [_P, ctypes.c_int32, _I, _P, _I]),
    "rd_kafka_queue_new": (_P, [_P]),
    "rd_kafka_queue_destroy": (None, [_P]),
    "rd_kafka_queue_forward": (None, [_P, _P]),
    "rd_kafka_queue_get_partition": (_P, [_P, ctypes.c_char_p, ctypes.c_int32]),
}
#: What native.c calls, as its `calls` names them in order.
_CALLS = (
    "rd_kafka_consume_batch_queue", "rd_kafka_message_destroy", "rd_kafka_message_timestamp",
    "rd_kafka_message_headers", "rd_kafka_header_cnt", "rd_kafka_header_get_all", "rd_kafka_producev",
)  # fmt: skip
_NATIVE: dict[str, tuple[Any, list[Any]]] = {
    "herdmesh_bind": (None, [_P]),
    "herdmesh_take": (_L, [_P, _I, _P, _P, _P, _L]),
    "herdmesh_release": (None, [_P, _L]),
    "herdmesh_copy": (None, [_P, _L, _P, _P, _P]),
    "herdmesh_headers": (_L, [_P, _L, _P, _P]),
    "herdmesh_put": (_L, [_P, _P, ctypes.c_int32, _P, _L]),
}

_log = logging.getLogger(__name__)


def handle(client: Producer | Consumer | AdminClient) -> int:
    """librdkafka's. Raises RuntimeError when the client was closed, as its own calls do."""
    found = ctypes.c_void_p.from_address(id(client) + _HANDLE_AT).value
    if not found:
        raise RuntimeError(f"the {type(client).__name__} is closed")
    return found


def address(data: bytes) -> int:
    """Where they lie, as long as they live."""
    found = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert found is not None
    return found


@cache
def librdkafka() -> Any:
    """As confluent-kafka has it; None where that is not one that was tried, which the log says."""
    found = str(confluent_kafka.__version__)
    if found not in _TRIED or sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _POINTER_BYTES:
        return _none("this was not tried with confluent-kafka %s", found)
    files = list((Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*"))
    if len(files) != 1:
        return _none("confluent-kafka %s has no librdkafka of its own", found)
    try:
        return _typed(ctypes.CDLL(str(files[0]), mode=os.RTLD_NOLOAD | os.RTLD_NOW), _LIBRDKAFKA)
    except OSError:  # it is not the one that the client has loaded
        return _none("confluent-kafka %s has another librdkafka than its own", found)


@cache
def loops() -> Any:
    """The loops of native.c, for `librdkafka`; None where there is neither or they were not made, which the log
    says."""
    library = librdkafka()
    if library is None:
        return None
    try:
        made = _typed(ctypes.CDLL(str(_LOOPS)), _NATIVE)
    except OSError as error:
        return _none("what is compiled when Herdmesh is installed is not there: %s", str(error))
    calls = (ctypes.c_void_p * len(_CALLS))(*(ctypes.cast(library[name], ctypes.c_void_p).value for name in _CALLS))
    made.herdmesh_bind(ctypes.addressof(calls))
    return made


def _typed(library: Any, calls: Mapping[str, tuple[Any, list[Any]]]) -> Any:
    for name, (answer, given) in calls.items():
        call = library[name]
        call.restype, call.argtypes = answer, given
        setattr(library, name, call)
    return library


def _none(why: str, of: str) -> None:
    _log.info(f"records are read and queued one by one: {why}", of)
