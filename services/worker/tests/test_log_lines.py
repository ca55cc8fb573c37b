"""Tests of the log lines that a worker keeps for `herd logs`: their units, their bounds, their pages."""

from __future__ import annotations

import gc
import io
import json
import logging
import tracemalloc

import pytest
import structlog

from herdmesh.rpc.process import configure_logging
from herdmesh.session.model import UnitId
from herdmesh.worker.log_lines import (
    LINE_CHARS_MAX,
    QUEUED_LINES_MAX,
    TOTAL_BYTES_MAX,
    UNIT_BYTES_MAX,
    CopiedStream,
    LineQueue,
    RecentLines,
    memory_of,
)

TASK = UnitId("orders", 0)


def texts(lines: RecentLines, connector: str = "", task: int | None = None, **more: int) -> list[str]:
    return [one.text for one in lines.page(connector, task, **more).lines]


def test_a_stream_is_written_through_and_copied_line_by_line() -> None:
    copied: list[str] = []
    written = io.StringIO()
    stream = CopiedStream(written, copied.append)
    for part in ("first\nsec", "ond\n\n", "third"):
        assert stream.write(part) == len(part)
    assert (written.getvalue(), copied) == ("first\nsecond\n\nthird", ["first", "second"])
    stream.write("x" * (LINE_CHARS_MAX + 10) + "\n")
    assert len(copied[-1]) < LINE_CHARS_MAX + 100


def test_lines_of_a_unit_are_found_by_connector_and_task() -> None:
    lines = RecentLines()
    lines.add_own("worker begins")
    lines.add_run(TASK, [(1, "a"), (2, "b")])
    lines.add_run(UnitId("orders", 1), [(3, "c")])
    lines.add_own(json.dumps({"unit": TASK.log_context, "event": "run_lost"}))
    lines.add_own(json.dumps({"unit": UnitId("orders").log_context, "event": "made"}))
    lines.add_own(json.dumps({"unit": "[orders|task-1|offsets]", "event": "committed"}))
    assert texts(lines, "orders", 0) == ["a", "b", '{"unit": "[orders|task-0]", "event": "run_lost"}']
    assert len(texts(lines, "orders")) == 6
    assert len(texts(lines)) == 7
    assert texts(lines, "order") == []
    assert texts(lines, "orders", 0, since_ms=2)[0] == "b"


def test_pages_follow_each_other_without_gap_or_repetition() -> None:
    lines = RecentLines()
    lines.add_run(TASK, [(number, str(number)) for number in range(1, 26)])
    latest = lines.page("orders", 0, size=10)
    assert ([one.text for one in latest.lines], latest.more, latest.cut) == (
        [str(n) for n in range(16, 26)],
        False,
        True,
    )
    lines.add_run(TASK, [(number, str(number)) for number in range(26, 41)])
    first = lines.page("orders", 0, after_number=latest.last_number, size=10)
    assert ([one.text for one in first.lines], first.more) == ([str(n) for n in range(26, 36)], True)
    rest = lines.page("orders", 0, after_number=first.last_number, size=10)
    assert ([one.text for one in rest.lines], rest.more) == ([str(n) for n in range(36, 41)], False)
    lines.add_run(UnitId("other", 0), [(1, "x")])
    assert lines.page("orders", 0, after_number=rest.last_number).lines == []


def test_a_chatty_unit_displaces_only_its_own_lines() -> None:
    lines = RecentLines()
    lines.add_run(UnitId("quiet", 0), [(1, "here")])
    lines.add_run(TASK, [(number, "x" * 1_000) for number in range(2_000)])
    page = lines.page("orders", 0, size=1_000)
    assert sum(map(memory_of, page.lines)) <= UNIT_BYTES_MAX
    assert page.cut
    assert texts(lines, "quiet") == ["here"]


@pytest.mark.parametrize("text", ["x", "\u4e2d" * 1_000, "\U0001f40e" * 1_000])
def test_short_lines_and_wide_letters_are_bounded_by_the_memory_that_they_take(text: str) -> None:
    lines = RecentLines()
    lines.add_run(TASK, [(1, text)])
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(20):
            lines.add_run(TASK, [(time_ms, text + str(time_ms)) for time_ms in range(1_000, 1_500)])
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= 1.2 * UNIT_BYTES_MAX


def test_all_units_together_are_bounded_and_the_longest_silent_are_forgotten() -> None:
    lines = RecentLines()
    many = TOTAL_BYTES_MAX // UNIT_BYTES_MAX + 10
    for number in range(many):
        lines.add_run(UnitId("c", number), [(at, "x" * 8_000) for at in range(32)])
    size = sum(map(memory_of, lines.page("", None, size=1_000_000).lines))
    assert size <= TOTAL_BYTES_MAX
    assert texts(lines, "c", 0) == []
    assert texts(lines, "c", many - 1) != []


def test_lines_that_a_run_cannot_send_in_time_are_counted() -> None:
    woken: list[int] = []
    queue = LineQueue(lambda: woken.append(1))
    for number in range(QUEUED_LINES_MAX + 7):
        queue.add(str(number))
    assert woken == [1], "the sender is woken once"
    sent, omitted = queue.take()
    assert ([sent[0][1], len(sent)], omitted, bool(queue)) == (["7", QUEUED_LINES_MAX], 7, False)
    lines = RecentLines()
    lines.add_run(TASK, sent, omitted)
    assert texts(lines, "orders", size=1_000)[0] == "[herdmesh] 7 lines were left out here: too many at once"


def test_the_worker_copies_what_its_loggers_write() -> None:
    root = logging.getLogger()
    before, level = [*root.handlers], root.level
    try:
        configure_logging("info")
        lines = RecentLines()
        with lines.copying_log():
            structlog.get_logger("herdmesh.worker.test").warning("run_lost", unit=TASK.log_context)
            logging.getLogger("elsewhere").warning("beside")
        structlog.get_logger("herdmesh.worker.test").warning("not_copied")
        (of_task,) = texts(lines, "orders", 0)
        assert json.loads(of_task)["event"] == "run_lost"
        assert [json.loads(one)["event"] for one in texts(lines)] == ["run_lost", "beside"]
    finally:
        root.handlers[:] = before
        root.setLevel(level)
