"""Java's errors for regular expressions (JDK 17): any user text is a pattern or a refusal.

Some hundred more patterns, through Connect: `services/worker/tests/java_validations.jsonl`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.errors import ConfigError, JavaRuntimeError
from herdmesh.connect.java.java_regex import compiled, matches, syntax_error
from herdmesh.connect.java.regex_replacement import Replacement


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
def test_patterns_are_refused_with_javas_messages(pattern: str, message: str | None) -> None:
    assert syntax_error(pattern) == message


@given(st.text(st.sampled_from("ab1.*+?|()[]{}^$-\\dwpLkn<>:=!,&QE xu0c"), max_size=12))
def test_any_text_is_a_pattern_or_a_refusal(pattern: str) -> None:
    wrong = syntax_error(pattern)
    assert wrong is None or pattern in wrong


def test_deeply_nested_groups_raise_no_recursion_error() -> None:
    syntax_error("(" * 5_000)  # too deep to judge, but no RecursionError
    assert syntax_error("((((a))))") is None


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("a.*", "abc", True),
        ("b", "abc", False),
        (r"\p{L}+", "äbc", True),
        (r"\p{Alpha}+", "äbc", False),
        (r"(?U)\p{Alpha}+", "äbc", True),
        (r"\w+", "é", False),
        ("[a-z&&[^x]]+", "axb", False),
        ("[a-z&&[^x]]+", "ab", True),
        ("(test)++t", "testtest", False),
        ("(?i)TÉ", "té", False),
        ("(?iu)TÉ", "té", True),
        ("(?i)[a-c]+(?-i)d", "aBCd", True),
        ("(?i:a)b", "AB", False),
        (r"t\Qe.s\E+t", "te.sst", True),
        ("a.b", "a\u2028b", False),
        ("(?s)a.b", "a\nb", True),
        ("a$", "a\n", False),
        ("(?x) a b # c", "ab", True),
        (r"(a)\11", "aa1", True),
        (r"(?<x>a)\k<x>", "aa", True),
        (r"[\Q^-]\E]+", "]-^", True),
        (r"\x41\u0042\0103\x{44}", "ABCD", True),
        ("a{2}{2}", "aaaa", True),
        (r"\p{IsGreek}\p{InGreek}\p{sc=Latin}", "αβa", True),
        (r"[\w&&\D]+", "ab_", True),
        (r"[^\d\s]+", "a 1", False),
    ],
)
def test_a_pattern_matches_as_in_java(pattern: str, text: str, *, wanted: bool) -> None:
    assert matches(pattern, text) is wanted


def test_constructs_that_only_java_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no counterpart outside Java"):
        matches(r"\p{javaMirrored}", "(")
    with pytest.raises(ConfigError, match="Invalid regex: Unclosed group"):
        matches("(", "(")


@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "wanted"),
    [
        ("(.)(.*)", "$2$1", "test", "estt"),
        ("a|ab", "x", "ab", "xb"),
        ("(.*)", "$11", "t", "t1"),
        ("(?<n>t)", "${n}!", "t", "t!"),
        ("(a)?b", "[$1]", "b", "[]"),
        ("b", r"\$1\\", "abc", r"a$1\c"),
        ("x", "$9", "b", "b"),
    ],
)
def test_the_first_match_is_replaced(pattern: str, replacement: str, text: str, wanted: str) -> None:
    assert Replacement(replacement, compiled(pattern)).first(text) == wanted


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        ("$2", "No group 2"),
        ("$", "Illegal group reference: group index is missing"),
        ("$x", "Illegal group reference"),
        ("${zz}", "No group with name {zz}"),
        ("${", "named capturing group is missing trailing '}'"),
        ("${a", "named capturing group is missing trailing '}'"),
        ("${1}", "capturing group name {1} starts with digit character"),
        ("\\", "character to be escaped is missing"),
    ],
)
def test_replacements_are_refused_with_javas_messages(replacement: str, message: str) -> None:
    with pytest.raises(JavaRuntimeError) as refused:
        Replacement(replacement, compiled("(.*)")).first("a")
    assert str(refused.value) == message
