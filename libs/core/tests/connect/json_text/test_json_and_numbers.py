"""JSON and numbers like Jackson's and Java 17's: the fast paths agree with the reference path."""

from __future__ import annotations

import gc
import json
import math
import sys
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import DataError
from herdmesh.connect.java import number_text
from herdmesh.connect.java.number_text import double_text, float_text, wrap_int32, wrap_int64
from herdmesh.connect.json_text import jackson
from herdmesh.connect.json_text.jackson_reader import JsonSyntaxError, read
from herdmesh.connect.model.java_values import decimal_text, hash_map_order, utf8_text
from herdmesh.topicstore.partitioner import murmur2

_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=10)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_values = st.recursive(
    _scalars | _finite,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(_values)
def test_written_json_is_read_back(value: Any) -> None:
    data = jackson.dumps(value)
    assert jackson.loads(data) == value
    assert read(data) == value
    assert json.loads(data) == value


def _alone_in_a_batch(text: bytes) -> Any:
    return jackson.loads_many([text])


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000], ids=["lists", "maps"])
@pytest.mark.parametrize("reads", [jackson.loads, jackson.loads_node, _alone_in_a_batch])
def test_garbage_collection_has_stack_room_at_any_depth_of_a_document(
    text: bytes, reads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection may run at any level, and code that it runs and that hits the recursion limit does not finish."""

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)

    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    def runs(_phase: str, _info: dict[str, int]) -> None:
        deep(sys.getrecursionlimit() // 2)

    gc.callbacks.append(runs)
    try:
        with pytest.raises(DataError):
            reads(text)
    finally:
        gc.callbacks.remove(runs)
    assert not lost


@given(st.lists(_values, max_size=4))
def test_batches_are_read_like_single_values(values: list[Any]) -> None:
    data = [json.dumps(value, ensure_ascii=False).encode() for value in values]
    assert jackson.loads_many(data) == [jackson.loads(item) for item in data]


@given(st.dictionaries(st.text(max_size=5), _scalars | _finite, max_size=4))
def test_maps_are_written_alike_by_fast_and_reference_path(value: dict[str, Any]) -> None:
    # One more member of a kind without a fast path makes the whole map take the reference path.
    careful = jackson.dumps({**value, "careful": []})
    assert jackson.dumps(value) in (careful.replace(b',"careful":[]', b""), b"{}")


@given(st.floats(min_value=1e-3, max_value=1e7, exclude_max=True))
def test_msgspec_and_java_agree_on_short_plain_doubles(value: float) -> None:
    short = float(f"{value:.6g}")
    if 1e-3 <= short < 1e7:
        assert msgspec.json.encode(short).decode() == double_text(short)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", None),
        (b" \n", None),
        (b"null", None),
        (b"0012", 12),
        (b"-007.5", -7.5),
        (b"1e999", math.inf),
        (b"9223372036854775808", -(2**63)),
        (b"18446744073709551616", 0),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"{} trailing", {}),
        (b"[1] ]", [1]),
        (b"1 x", 1),
        (b"\xef\xbb\xbf{}", {}),
        ('{"a":1}'.encode("utf-16-le"), {"a": 1}),
        ('{"a":1}'.encode("utf-32-be"), {"a": 1}),
        (b'"\\ud800"', "\ud800"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\/\\u00e9"', "/\u00e9"),
        (b"[" * 1000 + b"]" * 1000, None),
    ],
)
def test_json_that_jackson_accepts_is_accepted(data: bytes, value: Any) -> None:
    read_value = jackson.loads(data)
    if not data.startswith(b"[["):
        assert read_value == value


@pytest.mark.parametrize(
    "data",
    [
        b"NaN",
        b"Infinity",
        b"{a:1}",
        b"{'a':1}",
        b"[1,]",
        b'{"a":1,}',
        b"[1",
        b'"a',
        b"nul",
        b"nullx",
        b"1.",
        b".5",
        b"+1",
        b"1x",
        b"-",
        b"1e",
        b'"\t"',
        b'"\\x"',
        b'"\\u12"',
        b'"\xff"',
        b"{",
        b"[1 2]",
        b'{"a" 1}',
        b"truefalse",
        b"1" * 1001,
        b'{"' + b"a" * 50_001 + b'":1}',
        b"[" * 1001 + b"]" * 1001,
        b"/**/1",
    ],
)
def test_json_that_jackson_refuses_is_refused(data: bytes) -> None:
    with pytest.raises(DataError) as refused:
        jackson.loads(data)
    assert str(refused.value) == jackson.INVALID_JSON


@given(st.binary(max_size=20))
def test_the_reference_reader_ends_with_a_value_or_a_refusal(data: bytes) -> None:
    try:
        value = read(data)
    except JsonSyntaxError:
        return  # the only error it may end with
    assert value is None or isinstance(value, bool | int | float | str | list | dict)


def test_strings_are_escaped_as_by_jackson() -> None:
    text = 'a"\\\b\t\n\f\r\x01\x1f/\x7f\u00e9\u2028\U0001f600\ud800'
    written = '"a\\"\\\\\\b\\t\\n\\f\\r\\u0001\\u001F/\x7f\u00e9\u2028\\uD83D\\uDE00\\uD800"'
    assert jackson.dumps(text) == written.encode()
    assert jackson.dumps({"k": text}) == b'{"k":' + written.encode() + b"}"


def test_maps_with_other_keys_are_lists_of_pairs() -> None:
    assert jackson.dumps({1: "x"}) == b'[[1,"x"]]'
    assert jackson.dumps({}) == b"{}"


# Recorded from Double.toString and Float.toString of Java 17.
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (1e7, "1.0E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (2e23, "1.9999999999999998E23"),
        (1.49905696525719776e17, "1.49905696525719776E17"),
        (5e-324, "4.9E-324"),
        (2.2250738585072014e-308, "2.2250738585072014E-308"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (3.0617315596860196e25, "3.0617315596860195E25"),
        (0.0023739692626650695, "0.0023739692626650695"),
        (9007199254740993.0, "9.007199254740992E15"),
        (1234567.12345678, "1234567.12345678"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_print_as_in_java(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (3.4028235e38, "3.4028235E38"),
        (1e10, "1.0E10"),
        (33554432.0, "3.3554432E7"),
        (-1.5, "-1.5"),
        (1.17549435e-38, "1.17549435E-38"),
        (1.4e-45, "1.4E-45"),
        (6.186498395058028e25, "6.1864983E25"),
    ],
)
def test_floats_print_as_in_java(value: float, text: str) -> None:
    assert float_text(value) == text


@given(_finite)
def test_printed_doubles_read_back(value: float) -> None:
    assert float(double_text(value)) == value


def test_integers_wrap_around() -> None:
    assert wrap_int64(2**63) == -(2**63)
    assert wrap_int32(2**32 + 1) == 1
    assert wrap_int32(-(2**31) - 1) == 2**31 - 1


def test_murmur2_is_kafkas() -> None:
    # From Kafka's own UtilsTest.
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF
    assert murmur2(b"abc") == 479470107


def test_texts_print_as_in_java() -> None:
    texts = ["1.50", "1E+3", "0E-10", "0.000001", "1E-7", "-12.5", "0.00"]
    assert [decimal_text(Decimal(text)) for text in texts] == texts
    assert utf8_text(b"a\xed\xa0\x80b\xff") == "a\ufffdb\ufffd"
    assert hash_map_order(["b", "a", "zz", "id"]) == ["zz", "a", "b", "id"]


def test_long_numbers_wrap_at_any_depth() -> None:
    data = b'{"a":[9223372036854775808,{"b":9223372036854775807}],"c":"12345678901234567890","d":1.5}'
    value = {"a": [-(2**63), {"b": 2**63 - 1}], "c": "12345678901234567890", "d": 1.5}
    assert jackson.loads(data) == value
    assert jackson.loads_many([data, b"{}", None]) == [value, {}, None]


_MANY_DIGITS = st.one_of(
    st.floats(1e-3, 1e7),
    st.integers(0, 10**9).map(lambda cents: cents * 0.01),
    st.integers(10**16, 10**17).flatmap(lambda digits: st.integers(10, 19).map(lambda scale: digits / 10.0**scale)),
    st.integers(-9, 22).flatmap(lambda two: st.integers(-3, 3).map(lambda ulps: 2.0**two * (1 + ulps * 2.0**-52))),
)


def _never(_value: float) -> bool:
    return False


@given(st.lists(_MANY_DIGITS, min_size=20, max_size=20), st.booleans())
def test_doubles_of_many_digits_print_as_digit_by_digit(values: list[float], negative: bool) -> None:
    values = [-value for value in values] if negative else values
    quick = [double_text(value) for value in values]
    same = [value for value in values if jackson.same_double_text(value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(number_text, "prints_shortest", _never)
        assert quick == [double_text(value) for value in values]
    assert [msgspec.json.encode(value).decode() for value in same] == [double_text(value) for value in same]


def test_from_one_on_javas_digits_are_the_shortest() -> None:
    """Every binary exponent from 1.0 to 1e7, both estimates of the decimal one, and every number of trailing zeros,
    except whole numbers.
    """
    estimate = number_text._estimate_exponent10  # pyright: ignore[reportPrivateUsage]
    stays_exact = number_text._stays_exact  # pyright: ignore[reportPrivateUsage]
    for exponent2 in range(24):
        for exponent10 in {estimate(least, exponent2) for least in (1 << 52, (1 << 53) - 1)}:
            assert all(stays_exact(exponent2, exponent10, zeros) for zeros in range(52 - exponent2))
    assert all(double_text(float(whole)) == f"{whole}.0" for whole in (1, 2, 3, 1024, 8_388_608, 9_999_999))


def test_most_doubles_of_many_digits_use_the_fast_path() -> None:
    values = [value for cents in range(50_000) if len(repr(value := cents * 0.01)) > 16]
    assert len(values) > 1_000
    assert sum(map(jackson.same_double_text, values)) > 0.8 * len(values)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a":"\xff"}', "invalid UTF-8 or UTF-16 in a string at character 6"),
        (b"[\xff]", "invalid UTF-8 or UTF-16 at character 1"),
        (b'{"a":"x', "a string is not closed: the input ends at character 7"),
        (b'{"a":"x\x01"}', r"a string holds a control character at 7: write it as \\u0001"),
    ],
)
def test_an_invalid_string_is_reported_with_its_error(data: bytes, why: str) -> None:
    with pytest.raises(DataError) as refused:
        jackson.loads(data)
    assert str(refused.value.__cause__) == why.replace("\\\\", "\\")


@pytest.mark.parametrize("text", [b"-0.0", b"[1,-0e5]", b'{"a":-0.00}', b"1\n-0E1", b"[ -0.0 ]", b'["a-b",-0.0]'])
def test_a_negative_zero_is_detected_wherever_a_number_may_be(text: bytes) -> None:
    assert jackson.has_negative_zero(text)


@pytest.mark.parametrize(
    "text", [b'"01234567-0e12-0e12-0123-0123456789ab"', b"-0", b"-0.01", b"[-1.0,1e-0]", b'"x-0.0"']
)
def test_text_that_only_looks_like_a_negative_zero_keeps_the_fast_path(text: bytes) -> None:
    """A uuid above all: a batch of them nearly always contains `-0e`."""
    assert not jackson.has_negative_zero(text)
