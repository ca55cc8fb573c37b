"""Sizes in bytes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.config.sizes import bytes_of, text_of_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1073741824", 1 << 30),
        ("512MB", 512 << 20),
        (" 512 mb ", 512 << 20),
        ("512m", 512 << 20),
        ("512MiB", 512 << 20),
        ("1.5GB", 1536 << 20),
        ("2t", 2 << 40),
        ("7B", 7),
        ("", None),
        ("MB", None),
        ("-1", None),
        ("512 megabytes", None),
        ("1,5GB", None),
        ("1e9", None),
        ("\u0661MB", None),
    ],
)
def test_sizes_are_parsed_or_refused(text: str, size_bytes: int | None) -> None:
    assert bytes_of(text) == size_bytes


@given(st.integers(1, 1 << 20), st.sampled_from(["KB", "MB", "GB"]))
def test_a_printed_size_is_parsed_back(number: int, unit: str) -> None:
    size_bytes = bytes_of(f"{number}{unit}")
    assert size_bytes is not None
    assert bytes_of(text_of_bytes(size_bytes)) == size_bytes


def test_a_size_that_is_whole_in_no_unit_is_shown_in_megabytes() -> None:
    assert text_of_bytes((530 << 20) + 1_000) == "530MB"
