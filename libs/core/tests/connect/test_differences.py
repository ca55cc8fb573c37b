"""docs/reference/differences.md lists exactly the differences that the golden tests allow."""

from __future__ import annotations

import os

import pytest

from libs.core.tests.connect.differences import KINDS, PAGE, page
from libs.core.tests.connect.golden_vectors import vectors


@pytest.mark.skipif("HERDMESH_GOLDEN_DIR" in os.environ, reason="the page is about the vectors in the project")
def test_the_page_equals_the_allowed_differences() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_only_few_vectors_differ() -> None:
    every = [*vectors("transforms.jsonl"), *vectors("converters.jsonl")]
    assert sum(any(kind.meets(one) for kind in KINDS) for one in every) <= max(1, len(every) // 200)
