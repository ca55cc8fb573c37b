"""Compiled loops (`native.c`, ADR 0016) over librdkafka's own calls (`herdmesh.kafka.librdkafka`).

Owns their location and the rows they share with Python. `column_queue` sends with them, `batch_consumer` reads.
confluent-kafka creates an object for each message, and holds the interpreter's lock meanwhile.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from herdmesh.kafka.librdkafka import handle, librdkafka, typed, unsupported

__all__ = ["ROW", "Rows", "Summary", "address", "fast_path_disabled", "handle", "librdkafka", "loops"]
_LOOPS = Path(__file__).with_name("_native.so")
"""The same for every Python 3; compiled with the package (libs/core/setup.py)."""

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
    """`summary` of native.c: of all rows of one call."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("value_bytes", "key_bytes", "values", "keys", "headers", "errors", "strangers")
    )


_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
#: The functions that native.c calls, in the order of its `calls`.
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


def address(data: bytes) -> int:
    """Memory address of the bytes, valid as long as the object lives."""
    found = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert found is not None
    return found


@cache
def loops() -> Any:
    """The loops of native.c, bound to `librdkafka`; None when the fast path is disabled (`fast_path_disabled`)."""
    library = librdkafka()
    if library is None:
        _log.info(_disabled())  # logged in each run's process, which may be on another machine than its worker
        return None
    try:
        made = typed(ctypes.CDLL(str(_LOOPS)), _NATIVE)
    except OSError:
        _log.info(_disabled())
        return None
    calls = (ctypes.c_void_p * len(_CALLS))(*(ctypes.cast(library[name], ctypes.c_void_p).value for name in _CALLS))
    made.herdmesh_bind(ctypes.addressof(calls))
    return made


def fast_path_disabled() -> str:
    """The message for the operator when records are read and queued one by one; "" = the fast path is in use."""
    return "" if loops() is not None else _disabled()


def _disabled() -> str:
    why = unsupported() or f"the compiled library {_LOOPS.name} of herdmesh-core is missing, or not of this platform"
    return f"Fast path disabled: {why}; throughput will be lower"
