"""The picture of `herd watch` in README and on the site, drawn by the command's own code.

Owns the connectors in it: a sink whose second task restarts, and a source.
"""

from __future__ import annotations

import io
import re
from typing import Final

from rich.console import Console

from herdmesh.api.common.v1 import connector_pb2 as common
from herdmesh.api.herder.v1 import connector_pb2 as herder
from herdmesh.api.worker.v1 import task_pb2
from herdmesh.cli.display import views
from herdmesh.cli.display.board import Board

LIVE_TABLE: Final = "docs/assets/live-table.svg"
_WIDTH: Final = 112


def pictures() -> dict[str, str]:
    """Path below the repository -> text of the SVG."""
    board = Board()
    board.trouble = None
    for connector in (_sink(), _source()):
        board.connectors[connector.name] = views.connector(connector)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(board.render())
    drawn = console.export_svg(title="herd watch", unique_id="herd-watch")
    # rich loads its font from another site; our pages load nothing from elsewhere
    drawn = re.sub(r"\s*@font-face \{.*?\}\n", "\n", drawn, flags=re.DOTALL)
    return {LIVE_TABLE: "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"}


def _source() -> herder.Connector:
    shown = herder.Connector(name="orders", type=common.CONNECTOR_TYPE_SOURCE)
    _status(shown.status, common.RUN_STATE_RUNNING, "worker-1:7204")
    _task(shown, common.RUN_STATE_RUNNING, "worker-2:7204", records=1_204_118, rate=9_870.0)
    return shown


def _sink() -> herder.Connector:
    shown = herder.Connector(name="lake", type=common.CONNECTOR_TYPE_SINK, lag_records=412, behind_records=412)
    _status(shown.status, common.RUN_STATE_RUNNING, "worker-2:7204")
    _task(shown, common.RUN_STATE_RUNNING, "worker-1:7204", records=601_853, rate=4_941.0)
    failed = _task(shown, common.RUN_STATE_FAILED, "worker-2:7204", records=601_853, rate=0.0)
    failed.progress.activity = task_pb2.TASK_ACTIVITY_FAILED
    failed.status.failure.message = "RETRIABLE: no space left on device"
    failed.status.explanation = "failed (RETRIABLE): no space left on device; restart 3 of 10 follows in 4 s"
    return shown


def _task(
    shown: herder.Connector, state: common.RunState.ValueType, worker: str, *, records: int, rate: float
) -> herder.Task:
    task = shown.tasks.add(id=common.TaskId(connector=shown.name, task=len(shown.tasks)))
    _status(task.status, state, worker)
    task.progress.activity = task_pb2.TASK_ACTIVITY_RUNNING
    task.progress.records_in = task.progress.records_out = records
    task.progress.records_per_second = rate
    return task


def _status(status: herder.UnitStatus, state: common.RunState.ValueType, worker: str) -> None:
    status.state, status.worker_id, status.start_count = state, worker, 1
