"""Record format of a standalone worker's offsets file (docs/reference/connect/offsets-topic.md, section 11): a
Java-serialized `HashMap<byte[], byte[]>`, as Connect's FileOffsetBackingStore reads and writes it.

Owns both directions of the Java Object Serialization Stream Protocol, as far as such a map needs it. Keys and values
are those of the offsets topic (`offsets_topic`) and are not interpreted here. Opens no file.

Invariant: Java reads the output of `encode` as the same map; `decode` reads Java's output as the same map, null keys
and values included; anything else is a DataError with the position, never half a map.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from herdmesh.connect.errors import DataError

Offsets = dict[bytes | None, bytes | None]

_MAGIC = 0xACED
_VERSION = 5
_TC_NULL = 0x70
_TC_REFERENCE = 0x71
_TC_CLASSDESC = 0x72
_TC_OBJECT = 0x73
_TC_ARRAY = 0x75
_TC_BLOCKDATA = 0x77
_TC_ENDBLOCKDATA = 0x78
_HANDLE_FIRST = 0x7E0000
_MAP_CLASS = "java.util.HashMap"
_MAP_UID = 0x0507DAC1C31660D1
_BYTES_CLASS = "[B"
_BYTES_UID = 0xACF317F8060854E0
_SC_WRITE_METHOD, _SC_SERIALIZABLE = 1, 2
_LOAD_FACTOR = 0.75
_CAPACITY_FIRST = 16
#: Handles in the order in which `encode` assigns them: the map's class, the map, the array's class.
_BYTES_CLASS_HANDLE = _HANDLE_FIRST + 2


def encode(offsets: Mapping[bytes | None, bytes | None]) -> bytes:
    """The file's bytes. Byte for byte Java's output, except for the order of entries, which is undefined in Java."""
    out = bytearray(struct.pack(">HH", _MAGIC, _VERSION))
    out += struct.pack(">BB", _TC_OBJECT, _TC_CLASSDESC) + _utf(_MAP_CLASS)
    out += struct.pack(">QBH", _MAP_UID, _SC_WRITE_METHOD | _SC_SERIALIZABLE, 2)
    out += b"F" + _utf("loadFactor") + b"I" + _utf("threshold")
    out += struct.pack(">BB", _TC_ENDBLOCKDATA, _TC_NULL)
    capacity = _CAPACITY_FIRST
    while len(offsets) > capacity * _LOAD_FACTOR:
        capacity *= 2
    threshold = int(capacity * _LOAD_FACTOR) if offsets else 0
    out += struct.pack(">fi", _LOAD_FACTOR, threshold)
    out += struct.pack(">BBii", _TC_BLOCKDATA, 8, capacity, len(offsets))
    described = False
    for item in (part for entry in offsets.items() for part in entry):
        if item is None:
            out.append(_TC_NULL)
            continue
        out.append(_TC_ARRAY)
        if described:
            out += struct.pack(">BI", _TC_REFERENCE, _BYTES_CLASS_HANDLE)
        else:
            described = True
            out.append(_TC_CLASSDESC)
            out += _utf(_BYTES_CLASS) + struct.pack(">QBH", _BYTES_UID, _SC_SERIALIZABLE, 0)
            out += struct.pack(">BB", _TC_ENDBLOCKDATA, _TC_NULL)
        out += struct.pack(">i", len(item)) + item
    out.append(_TC_ENDBLOCKDATA)
    return bytes(out)


def decode(data: bytes) -> Offsets:
    """The map in a file's bytes. Raises DataError, with the position, for anything but a map of byte arrays."""
    return _Reader(data).map()


class _Reader:
    """Reader of one stream; used once."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._handles: list[Any] = []

    def map(self) -> Offsets:
        if self._unpack(">HH") != (_MAGIC, _VERSION):
            raise self._wrong("this is not a Java serialization stream", 0)
        self._expect(_TC_OBJECT, "an object")
        self._class(_MAP_CLASS, _MAP_UID, fields=2)
        self._handles.append(None)  # the map itself
        self._unpack(">fi")  # load factor and threshold: Java ignores both when it reads
        self._expect(_TC_BLOCKDATA, "the map's size")
        length, _, size = self._unpack(">Bii")
        if length != 8 or size < 0:
            raise self._wrong(f"a map of {size} entries")
        found: Offsets = {}
        for _ in range(size):
            key = self._bytes()
            found[key] = self._bytes()
        self._expect(_TC_ENDBLOCKDATA, "the end of the map")
        if self._at != len(self._data):
            raise self._wrong("there is more after the map")
        return found

    def _bytes(self) -> bytes | None:
        tag = self._tag()
        if tag == _TC_NULL:
            return None
        if tag == _TC_REFERENCE:
            item = self._reference()
            if not isinstance(item, bytes):
                raise self._wrong("a reference to something that is no byte array")
            return item
        if tag != _TC_ARRAY:
            raise self._wrong(f"a byte array was expected, not type 0x{tag:02x}", self._at - 1)
        self._class(_BYTES_CLASS, _BYTES_UID, fields=0)
        handle = len(self._handles)
        self._handles.append(None)
        (length,) = self._unpack(">i")
        item = self._take(length)
        self._handles[handle] = item
        return item

    def _class(self, name: str, uid: int, fields: int) -> None:
        """Read a class description, in full or by reference, which must be that of `name`."""
        tag = self._tag()
        if tag == _TC_REFERENCE:
            if self._reference() != name:
                raise self._wrong(f"a {name} was expected")
            return
        if tag != _TC_CLASSDESC:
            raise self._wrong("a class description was expected", self._at - 1)
        begin = self._at
        found = self._text()
        if found != name:
            raise self._wrong(f"a {name} was expected, not a {found}", begin)
        if self._unpack(">Q") != (uid,):
            raise self._wrong(f"another version of {name}", begin)
        self._handles.append(name)
        _, count = self._unpack(">BH")
        if count != fields:
            raise self._wrong(f"another version of {name}", begin)
        for _ in range(count):
            self._tag()
            self._text()
        self._expect(_TC_ENDBLOCKDATA, "the end of a class description")
        self._expect(_TC_NULL, "no super class")

    def _reference(self) -> Any:
        (handle,) = self._unpack(">I")
        index = handle - _HANDLE_FIRST
        if not 0 <= index < len(self._handles):
            raise self._wrong(f"a reference to nothing: 0x{handle:x}")
        return self._handles[index]

    def _text(self) -> str:
        (length,) = self._unpack(">H")
        return self._take(length).decode("ascii", "replace")

    def _tag(self) -> int:
        return self._take(1)[0]

    def _expect(self, tag: int, what: str) -> None:
        if self._tag() != tag:
            raise self._wrong(f"{what} was expected", self._at - 1)

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise self._wrong("it ends in the middle")
        part = self._data[self._at : end]
        self._at = end
        return part

    def _wrong(self, what: str, at: int | None = None) -> DataError:
        return DataError(f"not an offsets file of Connect: at byte {self._at if at is None else at}: {what}")


def _utf(text: str) -> bytes:
    raw = text.encode("ascii")
    return struct.pack(">H", len(raw)) + raw
