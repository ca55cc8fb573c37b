"""`herd run` ended by a signal to its whole process group, as service managers send it: nothing but its own words."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.standalone import SAMPLE_SINK, SAMPLE_SOURCE, herd_run, write_samples

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_signal_to_the_group_ends_it_without_a_trace(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "test.txt").write_text("one\n")
    with herd_run(tmp_path, write_samples(tmp_path, kafka_bootstrap, tmp_topic())) as running:
        running.until_running(SAMPLE_SOURCE, SAMPLE_SINK)
        running.interrupt(signal.SIGTERM)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" not in log, log[-3000:]
    assert "Py4J" not in log, log[-3000:]
