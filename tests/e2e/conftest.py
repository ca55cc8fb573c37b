"""The one `herd run` that the tests of its API share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.standalone import SAMPLE_SINK, SAMPLE_SOURCE, HerdRun, herd_run, write_samples
from tests.support.topic_names import topic_names


@pytest.fixture(scope="module")
def standalone(kafka_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HerdRun]:
    """A process with Connect's sample files whose source has two lines, and with enough slots for all tests."""
    folder = tmp_path_factory.mktemp("standalone")
    (folder / "test.txt").write_text("one\ntwo\n")
    files = write_samples(folder, kafka_bootstrap, topic_names("standalone-api")())
    with herd_run(folder, files, HERDMESH_SLOTS="32") as running:
        running.until_running(SAMPLE_SOURCE, SAMPLE_SINK)
        yield running
