"""Dates as Java's SimpleDateFormat (JDK 17, UTC, en_US) prints and parses them; the expected results are a JDK's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import IllegalArgumentError
from herdmesh.connect.java.gregorian import CUTOVER, day_at, day_of, first_of_month
from herdmesh.connect.java.simple_date_format import DateFormat
from herdmesh.connect.java.time_zones import UTC

LETTERS = "GyMdkHmsSEDFwWahKzZYuXL"
MILLISECONDS = st.integers(-(10**14), 3 * 10**14) | st.integers(-12_300_000_000_000, -12_000_000_000_000)
PATTERNS = st.sampled_from(
    ["yyyy-MM-dd", "yyyyMMddHHmmssSSS", "yyyy-MM-dd'T'HH:mm:ss.SSSX", "MM/dd/yyyy", "yyyy MMM d E", "HH:mm yyyy", "yy"]
)

FORMATTED = [
    ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", 1483425001864, "2017-01-03T06:30:01.864Z"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", 1709164800000, "2024-02-29T00:00:00.000Z"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", -12219292800000, "1582-10-15T00:00:00.000Z"),
    ("G yy D F a h K k E", 1483425001864, "AD 17 3 1 AM 6 6 6 Tue"),
    ("G yy D F a h K k E", -1, "AD 69 365 5 PM 11 11 23 Wed"),
    ("G yy D F a h K k E", 253402300800000, "AD 00 1 1 AM 12 0 24 Sat"),
    ("G yy D F a h K k E", 1709164800000, "AD 24 60 5 AM 12 0 24 Thu"),
    ("G yy D F a h K k E", 1735603200000, "AD 24 366 5 AM 12 0 24 Tue"),
    ("G yy D F a h K k E", -12219292800001, "AD 82 277 1 PM 11 11 23 Thu"),
    ("G yy D F a h K k E", -12219292800000, "AD 82 278 1 AM 12 0 24 Fri"),
    ("G yy D F a h K k E", -62135769600001, "BC 01 366 5 PM 11 11 23 Fri"),
    ("F W w", 253402300800000, "1 1 1"),
    ("F W w", -12219292800001, "1 1 40"),
    ("YYYY-'W'ww-u", 1483425001864, "2017-W01-2"),
    ("YYYY-'W'ww-u", -1, "1970-W01-3"),
    ("YYYY-'W'ww-u", 253402300800000, "10000-W01-6"),
    ("YYYY-'W'ww-u", 1709164800000, "2024-W09-4"),
    ("YYYY-'W'ww-u", 1735603200000, "2025-W01-2"),
    ("YYYY-'W'ww-u", -12219292800001, "1582-W40-4"),
    ("YYYY-'W'ww-u", -12219292800000, "1582-W40-5"),
    ("YYYY-'W'ww-u", -62135769600001, "0001-W01-5"),
    ("MMMM EEEE L LLL", -1, "December Wednesday 12 Dec"),
    ("MMMM EEEE L LLL", 1735603200000, "December Tuesday 12 Dec"),
    ("MMMM EEEE L LLL", -62135769600001, "December Friday 12 Dec"),
    ("''yyyy''", 253402300800000, "'10000'"),
    ("''yyyy''", -12219292800001, "'1582'"),
    ("HH 'o''clock' z zzzz Z X", 1483425001864, "06 o'clock UTC Coordinated Universal Time +0000 Z"),
    ("HH 'o''clock' z zzzz Z X", 1709164800000, "00 o'clock UTC Coordinated Universal Time +0000 Z"),
    ("HH 'o''clock' z zzzz Z X", -12219292800000, "00 o'clock UTC Coordinated Universal Time +0000 Z"),
    ("SSSSSS", -1, "000999"),
    ("SSSSSS", 1735603200000, "000000"),
    ("SSSSSS", -62135769600001, "000999"),
    ("yyyyy.MMMMM.dd GGG hh:mm aaa", 253402300800000, "10000.January.01 AD 12:00 AM"),
    ("yyyyy.MMMMM.dd GGG hh:mm aaa", -12219292800001, "01582.October.04 AD 11:59 PM"),
    ("YY", 1483425001864, "17"),
    ("YY", 1709164800000, "24"),
    ("YY", -12219292800000, "82"),
]
PARSED: list[tuple[str, str, int | None, str | None]] = [
    ("yyyy-MM-dd", "2024-02-30", 1709251200000, "2024-03-01"),
    ("yyyy-MM-dd", "2024-2-3 and more", 1706918400000, "2024-02-03"),
    ("yyyy-MM-dd", "-5-1-1", -62325158400000, "0006-01-01"),
    ("yyyy-MM-dd", "1582-10-10", -12218860800000, "1582-10-20"),
    ("yyyy-MM-dd", "1582-10-15", -12219292800000, "1582-10-15"),
    ("yyyy-MM-dd", " 2024- 02-03", 1706918400000, "2024-02-03"),
    ("yyyy-MM-dd", "2024-13-01", 1735689600000, "2025-01-01"),
    ("yyyy-MM-dd", "2024", None, None),
    ("yyyyMMdd", "20240101", 1704067200000, "20240101"),
    ("yyyyMMddHHmm", "202401012359", 1704153540000, "202401012359"),
    ("yyMMdd", "991231", 946598400000, "991231"),
    ("MM/dd/yy", "1/2/49", -662601600000, "01/02/49"),
    ("MM/dd/yy", "1/2/3", -62072611200000, "01/02/03"),
    ("ss", "1E3", 1000000, "40"),
    ("ss", "1e3", 1000, "01"),
    ("ss", "NaN", 0, "00"),
    ("ss", "٣", 3000, "03"),
    ("HH:mm", "25:99", 95940000, "02:39"),
    ("h:mm a", "12:30 am", 1800000, "12:30 AM"),
    ("h:mm a", "13:30 PM", 91800000, "1:30 AM"),
    ("h:mm a", "0:30 xm", None, None),
    ("k:mm", "24:00", 0, "24:00"),
    ("K a", "11 pm", 82800000, "11 PM"),
    ("D yyyy", "366 2023", 1704067200000, "1 2024"),
    ("EEE yyyy", "Mon 2024", 1704067200000, "Mon 2024"),
    ("G yyyy", "BC 0044", -63524304000000, "BC 0044"),
    ("yyyy 'W'W E MM", "2024 W2 Tue 03", 1709596800000, "2024 W2 Tue 03"),
    ("yyyy MM F E", "2024 03 -1 Fri", 1711670400000, "2024 03 5 Fri"),
    ("yyyy w", "2024 53", 1735430400000, "2024 1"),
    ("YYYY-'W'ww-u", "2024-W05-3", 1706659200000, "2024-W05-3"),
    ("YYYY u w", "1580 68 9", -12296102400000, "1580 5 18"),
    ("YYYY-'W'ww", "2021-W01", 1609027200000, "2021-W01"),
    ("dd MMM yyyy", "05 FEBRUARY 2021", 1612483200000, "05 Feb 2021"),
    ("dd MMM yyyy", "05 Fév 2021", None, None),
    ("yyyy-MM-dd HH:mm z", "2024-07-01 12:00 PST", 1719864000000, "2024-07-01 13:00 PDT"),
    ("yyyy-MM-dd HH:mm z", "2024-07-01 12:00 CEST", 1719828000000, "2024-07-01 12:00 CEST"),
    ("yyyy-MM-dd HH:mm z", "2024-07-01 12:00 GMT+3", None, None),
    ("yyyy-MM-dd HH:mm z", "2024-07-01 12:00 GMT+3:30", 1719822600000, "2024-07-01 08:30 UTC"),
    ("yyyy-MM-dd HH:mm z", "2024-07-01 12:00 gmt", 1719835200000, "2024-07-01 12:00 UTC"),
    ("yyyy-MM-dd HH:mm z", "2024-07-01 12:00 Japan Standard Time", 1719802800000, "2024-07-01 12:00 JST"),
    ("yyyy-MM-dd HH:mm z", "1880-07-01 12:00 EST", -2824354800000, "1880-07-01 12:00 EST"),
    ("yyyy-MM-dd HH:mm z", "2024-07-01 12:00 +0530", 1719815400000, "2024-07-01 06:30 UTC"),
    ("yyyy-MM-dd HH:mm Z", "2024-01-01 00:00 -0530", 1704087000000, "2024-01-01 05:30 +0000"),
    ("yyyy-MM-dd HH:mm Z", "2024-01-01 00:00 -2430", None, None),
    ("yyyy-MM-dd'T'HH:mmX", "2024-01-01T00:00+02", 1704060000000, "2023-12-31T22:00Z"),
    ("yyyy-MM-dd'T'HH:mmXX", "2024-01-01T00:00+0230", 1704058200000, "2023-12-31T21:30Z"),
    ("yyyy-MM-dd'T'HH:mmXXX", "2024-01-01T00:00+02:30", 1704058200000, "2023-12-31T21:30Z"),
    ("yyyy-MM-dd'T'HH:mmXXX", "2024-01-01T00:00Z", 1704067200000, "2024-01-01T00:00Z"),
    ("yyyy-MM-dd'T'HH:mmXXX", "2024-01-01T00:00z", None, None),
    ("yyyy-MM-dd", "292278995-01-01", -9223372025043951616, "292269054-04-18"),
    ("yyyy''yyyy", "2023'2024", 1704067200000, "2024'2024"),
]


@pytest.mark.parametrize(("pattern", "milliseconds", "text"), FORMATTED)
def test_a_date_prints_as_in_java(pattern: str, milliseconds: int, text: str) -> None:
    assert DateFormat(pattern).format(milliseconds) == text


@pytest.mark.parametrize(("pattern", "text", "milliseconds", "again"), PARSED)
def test_a_text_is_parsed_as_in_java(pattern: str, text: str, milliseconds: int | None, again: str | None) -> None:
    read = DateFormat(pattern, now_ms=1_795_000_000_000).parse(text)
    if read is None:
        assert milliseconds is None
        return
    assert read[0] == milliseconds
    assert DateFormat(pattern).format(*read) == again


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("bogus", "Illegal pattern character 'b'"),
        ("yyyy'", "Unterminated quote"),
        ("XXXX", "invalid ISO 8601 format: length=4"),
    ],
)
def test_a_pattern_is_refused_with_javas_message(pattern: str, message: str) -> None:
    with pytest.raises(IllegalArgumentError) as refused:
        DateFormat(pattern)
    assert str(refused.value) == message


@given(PATTERNS, MILLISECONDS)
def test_the_fast_path_of_printing_equals_the_reference_path(pattern: str, milliseconds: int) -> None:
    made = DateFormat(pattern)
    assert made.format(milliseconds) == made.format_slowly(milliseconds, UTC)


@given(PATTERNS, MILLISECONDS, st.integers(0, 20), st.sampled_from(["", "0", "-", " ", "E2", "99", "x", "٣"]))
def test_the_fast_path_of_parsing_equals_the_reference_path(
    pattern: str, milliseconds: int, place: int, more: str
) -> None:
    made = DateFormat(pattern, now_ms=1_795_000_000_000)
    text = made.format(milliseconds)
    text = text[:place] + more + text[place:]
    assert made.parse(text) == made.parse_slowly(text)


@given(st.integers(1, 9999), st.integers(0, 86_399_999))
def test_a_printed_date_is_parsed_back(year: int, rest: int) -> None:
    made = DateFormat("yyyy-MM-dd HH:mm:ss.SSS")
    milliseconds = (first_of_month(year, 3, julian=year < 1582) - 719_163) * 86_400_000 + rest
    assert made.parse(made.format(milliseconds)) == (milliseconds, UTC)


@given(st.integers(-500_000, 900_000))
def test_the_calendar_fields_of_a_day_give_the_day(fixed: int) -> None:
    day = day_at(fixed)
    assert day_of({"y": (1, day.year), "M": (2, day.month - 1), "d": (3, day.day)}, 1, 0) == fixed
    assert day_of({"y": (1, day.year), "D": (2, day.day_of_year)}, 1, 0) == fixed or abs(fixed - CUTOVER) < 400


@given(st.lists(st.sampled_from(LETTERS + "'-/ "), max_size=8).map("".join), st.text(max_size=8))
def test_any_text_is_a_date_or_refused(pattern: str, text: str) -> None:
    try:
        made = DateFormat(pattern)
    except IllegalArgumentError:
        return
    read = made.parse(text)
    assert read is None or made.format(*read) is not None
