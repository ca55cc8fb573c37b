"""librdkafka's own calls, which confluent-kafka does not offer or not without an object for each message.

Owns where the library is found, the calls that are typed for all, and the handle of a client. The handle of
confluent-kafka's clients is private to it: the first field of their objects. So this is done with the versions that
were tried (`_TRIED`), by tests that make such calls, and with no other.

Invariant: memory is read through the handle of an open client of a tried version, or not at all.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

_TRIED = frozenset(("2.16.1",))
"""A version belongs here when the engine's tests of queueing, reading and groups pass with it, on every platform it is
used on."""
_HANDLE_AT = object.__basicsize__
"""Where a client has librdkafka's handle: behind what every Python object begins with."""
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
#: What is called: the type of the answer, and of what is given.
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

_log = logging.getLogger(__name__)


def handle(client: Producer | Consumer | AdminClient) -> int:
    """librdkafka's. Raises RuntimeError when the client was closed, as its own calls do."""
    found = ctypes.c_void_p.from_address(id(client) + _HANDLE_AT).value
    if not found:
        raise RuntimeError(f"the {type(client).__name__} is closed")
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
        return typed(ctypes.CDLL(str(files[0]), mode=os.RTLD_NOLOAD | os.RTLD_NOW), _LIBRDKAFKA)
    except OSError:  # it is not the one that the client has loaded
        return _none("confluent-kafka %s has another librdkafka than its own", found)


def typed(library: Any, calls: Mapping[str, tuple[Any, list[Any]]]) -> Any:
    """The library, with the types of its calls: of the answer, and of what is given."""
    for name, (answer, given) in calls.items():
        call = library[name]
        call.restype, call.argtypes = answer, given
        setattr(library, name, call)
    return library


def _none(why: str, of: str) -> None:
    _log.info(f"records are read and queued one by one, and groups have names of printable ASCII: {why}", of)
