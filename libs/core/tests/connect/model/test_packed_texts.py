"""Columns of texts that stay UTF-8, equal to a list of their items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.chain.record_chain import SinkChain, SourceChain
from herdmesh.connect.converters.simple_header import SimpleHeaderConverter
from herdmesh.connect.converters.string import StringConverter
from herdmesh.connect.model.data import Batch
from herdmesh.connect.model.packed_texts import PackedBytes, PackedTexts, UnreadTexts

LINES = st.lists(st.text(max_size=8).map(lambda text: text.replace("\n", "")), max_size=20)
SLICES = st.tuples(st.integers(-25, 25) | st.none(), st.integers(-25, 25) | st.none())


def converter(encoding: str = "utf-8") -> StringConverter:
    made = StringConverter()
    made.configure({"converter.encoding": encoding}, "value")
    return made


def header() -> SimpleHeaderConverter:
    made = SimpleHeaderConverter()
    made.configure({}, "header")
    return made


def packed(lines: Sequence[str], rest: bytes = b"") -> PackedBytes:
    return PackedBytes.lines("".join(f"{line}\n" for line in lines).encode() + rest)


@given(LINES, st.sampled_from([b"", b"half", "é".encode()[:1]]), SLICES)
def test_packed_lines_equal_the_items_of_a_list(
    lines: list[str], rest: bytes, ends: tuple[int | None, int | None]
) -> None:
    raw = [line.encode() for line in lines]
    found, chosen = packed(lines, rest), slice(*ends)
    assert list(found) == raw
    assert len(found) == len(raw)
    assert [found[at] for at in range(-len(raw), len(raw))] == [raw[at] for at in range(-len(raw), len(raw))]
    assert list(found[chosen]) == raw[chosen]
    assert list(found[chosen][1:]) == raw[chosen][1:]
    texts = PackedTexts(found)
    assert list(texts[chosen]) == lines[chosen]
    assert list(texts) == lines
    assert [texts[at] for at in range(len(lines))] == lines
    assert (list(texts[chosen]), list(texts[chosen].utf8)) == (lines[chosen], raw[chosen])


def test_an_index_beyond_the_last_is_an_error() -> None:
    with pytest.raises(IndexError):
        packed(["a"])[1]


@given(LINES)
def test_a_source_writes_packed_texts_without_a_copy_and_re_encodes_other_encodings(lines: list[str]) -> None:
    chain = SourceChain(converter(), converter(), header(), [])
    values = PackedTexts(packed(lines))
    made = chain.run(Batch("t", None, (), values))
    assert [list(one.values) for one in made] == ([[line.encode() for line in lines]] if lines else [])
    if made:
        assert made[0].values is values.utf8, "no bytes were made of each"
    wide = SourceChain(converter(), converter("utf-16"), header(), []).run(Batch("t", None, (), values))
    assert [list(one.values) for one in wide] == [[converter("utf-16").write(x, None) for x in lines]] * bool(lines)


@given(st.lists(st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode), min_size=1, max_size=12))
def test_unread_texts_are_joined_as_they_would_be_read(data: list[bytes | None]) -> None:
    chain = SinkChain(converter(), converter(), header(), [])
    (made,) = chain.run(Batch("t", 0, (), data, range(len(data))))
    values = made.values
    assert isinstance(values, UnreadTexts)
    joined = values.joined(b"\n")
    texts: list[Any] = [converter().read(one)[1] for one in data]
    assert list(values) == texts
    if joined is not None:
        assert joined == "".join(f"{text}\n" for text in texts).encode()
    is_plain = all(one is not None and one.decode("utf-8", "replace").encode() == one for one in data)
    assert (joined is not None) is is_plain


def test_another_encoding_gives_no_packed_column() -> None:
    (made,) = SinkChain(converter(), converter("utf-16"), header(), []).run(Batch("t", 0, (), [b"\0a"], [0]))
    assert not isinstance(made.values, UnreadTexts)
    assert list(made.values) == ["a"]


@given(LINES, SLICES, st.booleans(), st.sampled_from([b"\n", b"|"]))
def test_slices_are_joined_like_those_of_a_list(
    lines: list[str], ends: tuple[int | None, int | None], backwards: bool, end: bytes
) -> None:
    """Also where the pieces are not contiguous, or have other bytes between them."""
    pieces = packed(lines)[slice(*ends, -1 if backwards else 1)]
    assert pieces.joined(end) == b"".join(piece + end for piece in pieces)
    with_nothing_behind = PackedBytes(b"ab", pieces.starts[:0], pieces.lengths[:0])
    assert with_nothing_behind.joined(end) == b""


def test_a_last_piece_without_a_terminator_is_joined_too() -> None:
    whole = packed(["a", "b"])
    assert PackedBytes(b"a\nb", whole.starts, whole.lengths).joined(b"\n") == b"a\nb\n"
