"""Records that the next run of a sink would read again."""

from __future__ import annotations

from herdmesh.engine.sink.sink_positions import SinkPositions

ONE, OTHER = ("t", 0), ("t", 1)


def test_records_are_pending_from_the_start_of_the_run_until_their_commit() -> None:
    positions = SinkPositions()
    positions.assign({ONE: 100, OTHER: 0})
    assert (positions.pending(ONE), positions.pending(OTHER)) == (0, 0)
    positions.read_to(ONE, 120)
    assert (positions.pending(ONE), positions.committed(ONE)) == (20, None)
    positions.set_committed({ONE: 115, OTHER: 0})
    assert positions.pending(ONE) == 5
    positions.read_to(ONE, 130)
    positions.return_to_committed()
    assert positions.pending(ONE) == 0


def test_a_seek_back_and_a_reset_leave_nothing_pending() -> None:
    positions = SinkPositions()
    positions.assign({ONE: 100})
    positions.read_to(ONE, 120)
    positions.seek(ONE, 90)
    assert positions.pending(ONE) == 0
    positions.read_to(ONE, 95)
    assert positions.pending(ONE) == 5
    positions.reset(ONE, 500)
    assert positions.pending(ONE) == 0
    positions.read_to(ONE, 502)
    assert positions.pending(ONE) == 2
