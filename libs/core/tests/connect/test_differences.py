"""docs/reference/differences.md says what the golden tests let pass, and nothing else."""

from __future__ import annotations

import os

import pytest

from libs.core.tests.connect.differences import KINDS, PAGE, page
from libs.core.tests.connect.golden_vectors import vectors


@pytest.mark.skipif("HERDMESH_GOLDEN_DIR" in os.environ, reason="the page is about the vectors in the project")
def test_the_page_is_what_the_vectors_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_few_vectors_are_met_otherwise() -> None:
    every = [*vectors("transforms.jsonl"), *vectors("converters.jsonl")]
    assert sum(any(kind.meets(one) for kind in KINDS) for one in every) <= max(1, len(every) // 200)
