"""What Java says of regular expressions (JDK 17), and that nothing a user writes is more than a refusal.

Some hundred more patterns, through Connect: `services/worker/tests/java_validations.jsonl`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.javaregex import matches, syntax_error


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"orders-(\d+)\.v[12]", None),
        ("[", "Unclosed character class near index 0\n[\n^"),
        ("((a)", "Unclosed group near index 4\n((a)"),
        ("a)", "Unmatched closing ')' near index 0\na)\n^"),
        ("a|*", "Dangling meta character '*' near index 2\na|*\n  ^"),
        ("x{2,1}", "Illegal repetition range near index 5\nx{2,1}\n     ^"),
        ("(b\\", "Unclosed group near index 4\n(b\\"),
        ("(?$)", "Unknown group type near index 2\n(?$)\n  ^"),
        ("[1-\\p{L}]", "Illegal/unsupported escape sequence near index 4\n[1-\\p{L}]\n    ^"),
        ("(?<n>a)(?<n>b)", "Named capturing group <n> is already defined near index 11\n(?<n>a)(?<n>b)\n           ^"),
    ],
)
def test_patterns_are_refused_in_javas_words(pattern: str, message: str | None) -> None:
    assert syntax_error(pattern) == message


@given(st.text(st.sampled_from("ab1.*+?|()[]{}^$-\\dwpLkn<>:=!,&QE xu0c"), max_size=12))
def test_any_text_is_a_pattern_or_a_refusal(pattern: str) -> None:
    wrong = syntax_error(pattern)
    assert wrong is None or pattern in wrong


def test_groups_within_groups_are_no_trouble() -> None:
    syntax_error("(" * 5_000)  # too deep to tell, but no RecursionError
    assert syntax_error("((((a))))") is None


def test_the_whole_text_has_to_match_and_what_only_java_knows_matches_nothing() -> None:
    assert matches("a.*", "abc")
    assert not matches("b", "abc")
    assert not matches(r"\p{L}+", "abc")
