"""librdkafka's own functions that confluent-kafka does not offer, or offers only with an object for each message.

Owns the location of the library, the functions that are typed for all users, the handle of a client, and the operator's
text for an unsupported confluent-kafka. The handle is private to confluent-kafka's clients: the first field of their
objects. So these functions are called only with the supported versions (`SUPPORTED`); the tests of the engine call each
of them.

Invariant: memory is read only through the handle of an open client of a supported version.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

SUPPORTED: Final = ("2.16.1",)
"""Supported versions of confluent-kafka, as pinned in libs/core/pyproject.toml. Add a version only when the engine's
tests of queueing, reading and groups pass with it, on every platform it is used on.
"""
LACKING: Final = (
    "the offset of a single partition cannot be deleted while its group keeps others (`herd offsets set` refuses it)",
    "a sink whose consumer group's name is not printable ASCII fails when it commits",
    "records that the client reports as delivered without a broker's response may be lost unnoticed",
    "a mirror, or a request for a sink's offsets, may crash the worker's process while a broker restarts",
)
"""Features that are missing or refused with another version, for an operator; docs/internals/bugs.md has the crashes
that the last two avoid. Records are then read and queued one by one.
"""
_HANDLE_AT = object.__basicsize__
"""Offset of librdkafka's handle in a client object: after the header of every Python object."""
_POINTER_BYTES = 8


class Partition(ctypes.Structure):
    """rd_kafka_topic_partition_t, of librdkafka's public header."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class Partitions(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (("cnt", ctypes.c_int), ("size", ctypes.c_int), ("elems", ctypes.POINTER(Partition)))


_P, _I = ctypes.c_void_p, ctypes.c_int
#: The functions in use: result type and argument types.
_LIBRDKAFKA: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_topic_new": (_P, [_P, ctypes.c_char_p, _P]),
    "rd_kafka_topic_destroy": (None, [_P]),
    "rd_kafka_topic_name": (ctypes.c_char_p, [_P]),
    "rd_kafka_last_error": (_I, []),
    "rd_kafka_produce_batch": (_I, [_P, ctypes.c_int32, _I, _P, _I]),
    "rd_kafka_queue_new": (_P, [_P]),
    "rd_kafka_queue_destroy": (None, [_P]),
    "rd_kafka_queue_yield": (None, [_P]),
    "rd_kafka_queue_forward": (None, [_P, _P]),
    "rd_kafka_queue_get_partition": (_P, [_P, ctypes.c_char_p, ctypes.c_int32]),
    "rd_kafka_topic_partition_list_new": (_P, [_I]),
    "rd_kafka_topic_partition_list_add": (_P, [_P, ctypes.c_char_p, ctypes.c_int32]),
    "rd_kafka_topic_partition_list_destroy": (None, [_P]),
    "rd_kafka_committed": (_I, [_P, _P, _I]),
    "rd_kafka_consumer_group_metadata_new": (_P, [ctypes.c_char_p]),
    "rd_kafka_consumer_group_metadata_destroy": (None, [_P]),
    "rd_kafka_send_offsets_to_transaction": (_P, [_P, ctypes.POINTER(Partitions), _P, _I]),
    "rd_kafka_error_code": (_I, [_P]),
    "rd_kafka_error_string": (ctypes.c_char_p, [_P]),
    "rd_kafka_error_is_fatal": (_I, [_P]),
    "rd_kafka_error_is_retriable": (_I, [_P]),
    "rd_kafka_error_txn_requires_abort": (_I, [_P]),
    "rd_kafka_error_destroy": (None, [_P]),
}


def handle(client: Producer | Consumer | AdminClient) -> int:
    """The librdkafka handle of a client. Raises RuntimeError when the client was closed, as its own calls do."""
    found = ctypes.c_void_p.from_address(id(client) + _HANDLE_AT).value
    if not found:
        raise RuntimeError(f"the {type(client).__name__} is closed")
    return found


@cache
def librdkafka() -> Any:
    """The library that confluent-kafka has loaded, with typed calls; None when it cannot be used (`unsupported`)."""
    return _loaded()[0]


def unsupported() -> str:
    """The reason, for an operator, why librdkafka's functions cannot be called here; "" = they can."""
    return _loaded()[1]


def _loaded() -> tuple[Any, str]:
    """The library and "", or None and the reason."""
    found = str(confluent_kafka.__version__)
    if found not in SUPPORTED:
        return None, f"unsupported confluent-kafka {found} (supported: {', '.join(SUPPORTED)})"
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _POINTER_BYTES:
        return None, f"unsupported Python {sys.implementation.name} (supported: CPython with 64 bits)"
    files = list((Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*"))
    if len(files) != 1:
        return None, f"confluent-kafka {found} was built without a librdkafka of its own (supported: its wheel)"
    try:
        return typed(ctypes.CDLL(str(files[0]), mode=os.RTLD_NOLOAD | os.RTLD_NOW), _LIBRDKAFKA), ""
    except OSError:  # the client has loaded another library file
        return None, f"confluent-kafka {found} has loaded another librdkafka than its own (supported: its wheel)"


def typed(library: Any, calls: Mapping[str, tuple[Any, list[Any]]]) -> Any:
    """Set result type and argument types of the library's functions; return the library."""
    for name, (answer, given) in calls.items():
        call = library[name]
        call.restype, call.argtypes = answer, given
        setattr(library, name, call)
    return library
