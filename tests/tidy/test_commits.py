"""Subjects of commits follow docs/STYLE.md, section 5, since the commit that introduced it."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.tidy.test_tree import ROOT

#: The last commit before the rule.
SINCE = "ff85ea6d"
SUBJECT_MAX = 72
_SUBJECT = re.compile(r"[a-z][\w./-]*(?:,? [\w./-]+)*: [a-z0-9`'\"_.*-].*[^.]")
#: First words of a summary that are no imperative.
_NO_VERBS = re.compile(
    r"(?:a|an|the|what|which|who|whom|whose|how|that|whether|where|when|why|of|if|from|in|as|one|it|there|"
    r"\w+(?:ed|ing)) ",
)
_VERBS_IN_ED_OR_ING = ("embed ", "feed ", "need ", "seed ", "speed ", "bring ", "ping ", "shed ")


def what_is_wrong(subject: str) -> str:
    """Why a subject breaks the rule; empty when it does not."""
    if len(subject) > SUBJECT_MAX:
        return f"{len(subject)} characters, at most {SUBJECT_MAX}"
    if not _SUBJECT.fullmatch(subject):
        return "write `area: imperative summary`, in lower case, without a full stop"
    summary = subject.partition(": ")[2].lower()
    if _NO_VERBS.match(summary) and not summary.startswith(_VERBS_IN_ED_OR_ING):
        return "begin the summary with a verb in the imperative"
    return ""


def test_subjects_since_the_rule_follow_it() -> None:
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h %s", f"{SINCE}..HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if log.returncode:
        pytest.skip("not a git checkout, or one without the commit that introduced the rule")
    wrong = [f"{line}: {why}" for line in log.stdout.splitlines() if (why := what_is_wrong(line.partition(" ")[2]))]
    assert not wrong, "reword these (docs/STYLE.md, section 5):\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    "subject",
    [
        "worker: log no traceback when the JVM ends before the worker",
        "docs: add a glossary with one word per concept",
        "config-store: reject writes after a fence",
        "libs/sdk: seed the suite's records",
    ],
)
def test_good_subjects_pass(subject: str) -> None:
    assert not what_is_wrong(subject)


@pytest.mark.parametrize(
    "subject",
    [
        "Where what a client may die of is asked",
        "engine: what is told of an end counts as no record",
        "engine: Count records",
        "engine: counted records",
        "engine: count records.",
        "engine: the record is counted",
        "engine: count " + "records " * 10,
        "count records",
    ],
)
def test_bad_subjects_are_found(subject: str) -> None:
    assert what_is_wrong(subject)
