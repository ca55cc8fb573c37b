"""Tests with Java itself: it reads properties files as our parser does, and offsets files pass between its store and
ours.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.tests.standalone.java_side import JavaSide
from herdmesh.connect.errors import DataError
from herdmesh.connect.java.properties_files import PropertiesError, parse
from herdmesh.connect.topics import offsets_file
from herdmesh.worker.effects.offsets.offset_file import OffsetFile
from tests.support.sizes import soak_or

pytestmark = pytest.mark.kafka  # the tests need Connect's jars, as tests with a broker do

#: Pieces of the syntax, and some letters that have no meaning in it.
_PIECES = st.sampled_from(
    [
        *(b"a", b"b", b"=", b":", b" ", b"\t", b"\f", b"\n", b"\r", b"\r\n", b"#", b"!", b"\\", b"\\\n", b"\\\r\n  "),
        *(b"\\u0041", b"\\uD83D\\uDE00", b"\\ud800", b"\\u00", b"\\uXYZW", b"\\t", b"\\n", b"\\=", b"\\u005c"),
        *(b"\xe9", b"\xc3\xa9", b"\x85", b"\x1c", b"\x0b", b"\x00", b"\xa0", b"'", b'"', b"key", b"value.1"),
    ]
)
_FILES = st.lists(_PIECES, max_size=14).map(b"".join)
ODD = [
    b"",
    b"\\",
    b"\\\n",
    b"\\\r",
    b"\\\r\n",
    b"\\\n\n",
    b"a\\",
    b"a\\\n",
    b"#\\\nb=1",
    b"\\\n#c\nd",
    b" \\\n",
    b"\\\\\n",
]
OFFSETS: dict[bytes, bytes | None] = {
    b'["files",{"filename":"a.txt"}]': b'{"position":12}',
    b'["files",{"filename":"b \xe2\x98\x83"}]': b'{"position":9007199254740993}',
    b'["other",null]': b'{"n":1.0}',
}


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaSide]:
    with JavaSide(tmp_path_factory.mktemp("java-side")) as side:
        yield side


def _ours(data: bytes) -> dict[bytes, bytes] | None:
    try:
        found = parse(data)
    except PropertiesError:
        return None
    return {_utf16(key): _utf16(one.value) for key, one in found.items()}


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def test_properties_are_read_as_java_reads_them(java: JavaSide) -> None:
    files = list(ODD)

    @settings(max_examples=soak_or(500, 20_000), derandomize=True, database=None, deadline=None)
    @given(_FILES)
    def collect(data: bytes) -> None:
        files.append(data)

    collect()
    wrong = [
        (data, theirs) for data, theirs in zip(files, java.properties(files), strict=True) if _ours(data) != theirs
    ]
    assert not wrong, f"{len(wrong)} of {len(files)}; first {wrong[0]}, ours {_ours(wrong[0][0])}"


async def test_an_offsets_file_of_java_is_continued_and_readable_by_java_again(java: JavaSide, tmp_path: Path) -> None:
    """Byte for byte except for the order of entries, which Java does not define; 12 entries fill its first table."""
    path = tmp_path / "connect.offsets"
    many = {b'["many",{"n":%d}]' % number: b'{"p":%d}' % number for number in range(9)}
    java.store(path, {**OFFSETS, **many})
    assert offsets_file.encode(offsets_file.decode(path.read_bytes())) == path.read_bytes()
    ours = OffsetFile(str(path))
    ours.open()
    assert ours.of("files") == {key: value for key, value in OFFSETS.items() if key.startswith(b'["files"')}
    assert ours.of("many") == many
    forgotten, moved, other = OFFSETS
    new, newer = b'["files",{"filename":"c.txt"}]', b'["files",{"filename":"d.txt"}]'
    await asyncio.gather(ours.store({moved: b'{"position":99}'}), ours.store({forgotten: None, new: b'{"position":1}'}))
    ours.close()
    assert java.stored(path, [forgotten, moved, new, other], "files") == (
        [None, b'{"position":99}', b'{"position":1}', b'{"n":1.0}'],
        2,
    )
    java.store(path, {newer: b'{"position":2}'})
    assert offsets_file.encode(found := offsets_file.decode(path.read_bytes())) == path.read_bytes()
    assert len(found) == 13
    ours.open()
    assert ours.of("files") == {moved: b'{"position":99}', new: b'{"position":1}', newer: b'{"position":2}'}
    ours.close()


@given(st.binary(max_size=60), st.integers(0, 400))
@settings(derandomize=True, database=None, deadline=None)
def test_a_damaged_file_is_refused_whole(noise: bytes, cut: int) -> None:
    good = offsets_file.encode({b"key": b"value", None: None, b"gone": None})
    assert offsets_file.decode(good) == {b"key": b"value", None: None, b"gone": None}
    for data in (good[: cut % len(good)], noise, good + noise or b"x"):
        if data != good:
            with pytest.raises(DataError, match="not an offsets file of Connect: at byte"):
                offsets_file.decode(data)


async def test_a_second_process_is_refused_the_file_and_a_full_disk_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    first = OffsetFile(str(path))
    first.open()
    with pytest.raises(Exception, match=r"connect\.offsets is in use by another process"):
        OffsetFile(str(path)).open()
    await first.store({b'["a",{}]': b"1"})
    before = path.read_bytes()
    path.with_name("connect.offsets.new").mkdir()
    with pytest.raises(OSError, match="directory"):
        await first.store({b'["a",{}]': b"2"})
    assert (path.read_bytes(), first.of("a")) == (before, {b'["a",{}]': b"1"})
    path.with_name("connect.offsets.new").rmdir()
    await first.store({b'["a",{}]': b"3"})
    first.close()
    path.write_bytes(b"something else")
    with pytest.raises(Exception, match=r"cannot be used: not an offsets file"):
        OffsetFile(str(path)).open()
    assert path.read_bytes() == b"something else"
    assert os.stat(path).st_size == 14
