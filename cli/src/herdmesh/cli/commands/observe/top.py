"""`herd top`: rates, lag, processor time and memory by worker and by connector.

Owns the command, and the sums over the tasks of a connector. The first line counts the connectors that need attention:
a failed task uses nothing, and would be last in every order by use. Rates and lag are the herder's, from the tasks'
progress; processor time and memory are the workers' own, read twice: a share is the difference over the time between.
Invariant: an unknown value is a dash and never 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape

from herdmesh.api.worker.v1 import worker_service_pb2 as pb
from herdmesh.cli.commands.observe.worker_calls import WorkerCalls, list_workers
from herdmesh.cli.display import views
from herdmesh.cli.display.output import (
    Format,
    colored,
    connector_lag,
    count,
    out,
    print_document,
    print_line,
    table,
)
from herdmesh.cli.display.sentences import Sentence
from herdmesh.cli.display.urgency import summary, summary_line
from herdmesh.cli.mesh.client import HerderClient
from herdmesh.cli.queries import fetch_connectors
from herdmesh.cli.runner import HerderOption, OutputOption, with_herder

_INTERVAL_S: Final = 1.0
_MIB: Final = 1 << 20
_WORKER_COLUMNS: Final = ("WORKER", "STATE", "TASKS", "RUNS", "SLOTS", "CPU", "MEMORY")
_CONNECTOR_COLUMNS: Final = ("CONNECTOR", "TASKS", "REC/S", "LAG", "CPU", "MEMORY")
_NUMBERS: Final = ("TASKS",)
#: Lines of the picture that are neither workers nor connectors.
_OWN_LINES: Final = 9
_DROP: Final = ("TASKS", "MEMORY", "LAG", "CPU")


def top(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show it again and again until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, help="Time over which CPU is measured.")
    ] = _INTERVAL_S,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="Maximum number of connectors; 0 = all.")
    ] = 20,
    herder: HerderOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what uses the machines: CPU (1.00 = one core), memory, rates and lag, the busiest first."""

    async def work(client: HerderClient) -> None:
        async with WorkerCalls() as calls:
            sampler = _Sampler(client, calls)

            async def next_sample() -> views.Json:
                await asyncio.sleep(interval)
                return await sampler.sample()

            await sampler.sample()
            found = await next_sample()
            if not follow:
                _print_once(found, limit, output)
            elif output.is_document:
                while True:
                    print_line(output, found)
                    found = await next_sample()
            elif not out.is_terminal:
                while True:
                    out.print(_tables(found, limit))
                    out.print()
                    found = await next_sample()
            else:
                with Live(_tables(found, _fitting(limit, found)), console=out, auto_refresh=False) as live:
                    while True:
                        found = await next_sample()
                        live.update(_tables(found, _fitting(limit, found)), refresh=True)

    with_herder(output, herder, work)


class _Sampler:
    """Reads the herder and all workers; remembers the last processor times."""

    def __init__(self, client: HerderClient, calls: WorkerCalls) -> None:
        self._client = client
        self._calls = calls
        self._before: dict[str, tuple[float, views.Json]] = {}

    async def sample(self) -> views.Json:
        workers, connectors = await asyncio.gather(list_workers(self._client), fetch_connectors(self._client))
        replies = await self._calls.call_all(workers, "GetWorkerStatus", pb.GetWorkerStatusRequest())
        now: dict[str, tuple[float, views.Json]] = {}
        for worker, reply in replies:
            at_s = reply.report_time.ToNanoseconds() / 1e9
            now[worker["worker_id"]] = (at_s, views.worker_status(reply))
        found = usage_of(workers, connectors, self._before, now)
        self._before = now
        return {"attention": summary(connectors), **found, "silent": dict(self._calls.silent)}


def usage_of(
    workers: Sequence[views.Json],
    connectors: Sequence[views.Json],
    before: dict[str, tuple[float, views.Json]],
    now: dict[str, tuple[float, views.Json]],
) -> views.Json:
    """`workers` and `connectors` with what they use, the busiest first. `before` and `now` have for each worker the
    time in seconds, and its status; `cpu` is in cores, None where there are no two values of one process.
    """
    of_tasks: dict[tuple[str, int], tuple[float | None, int]] = {}
    rows: list[views.Json] = []
    for worker in workers:
        name = worker["worker_id"]
        at_s, status = now.get(name, (0.0, None))
        earlier_s, earlier = before.get(name, (0.0, None))
        span_s = at_s - earlier_s if earlier is not None else 0.0
        rows.append({**_worker_row(worker, status, earlier, span_s)})
        if status is not None:
            known = {} if earlier is None else {one["pid"]: one for one in earlier["runs"]}
            for run in status["runs"]:
                cpu = _cores(run, known.get(run["pid"]), span_s)
                of_tasks[run["connector"], run["task"]] = (cpu, run["memory_bytes"])
    listed = [_connector_row(one, of_tasks) for one in connectors]
    rows.sort(key=_busiest)
    listed.sort(key=_busiest)
    return {"workers": rows, "connectors": listed}


def _worker_row(worker: views.Json, status: views.Json | None, earlier: views.Json | None, span_s: float) -> views.Json:
    own = status["own"] if status is not None else None
    return {
        "name": worker["worker_id"],
        "state": worker["state"],
        "tasks": len(worker["tasks"]),
        "runs": len(status["runs"]) if status is not None else None,
        "slots": worker["slots"],
        "cpu": _cores(own, earlier["own"] if earlier is not None else None, span_s),
        "memory_bytes": own["memory_bytes"] if own is not None else None,
        "records_per_second": 0.0,
    }


def _connector_row(connector: views.Json, of_tasks: dict[tuple[str, int], tuple[float | None, int]]) -> views.Json:
    name = connector["name"]
    used = [of_tasks[name, one["id"]] for one in connector["tasks"] if (name, one["id"]) in of_tasks]
    shares = [cpu for cpu, _ in used if cpu is not None]
    moved = [one["progress"]["records_per_second"] for one in connector["tasks"] if "progress" in one]
    return {
        "name": name,
        "running": sum(one["state"] == "RUNNING" for one in connector["tasks"]),
        "tasks": len(connector["tasks"]),
        "records_per_second": round(sum(moved), 1) if moved else None,
        "behind_records": connector["behind_records"],
        "lag": connector_lag(connector),
        "cpu": round(sum(shares), 3) if shares else None,
        "memory_bytes": sum(memory for _, memory in used) if used else None,
    }


def _cores(now: views.Json | None, before: views.Json | None, span_s: float) -> float | None:
    if now is None or before is None or span_s <= 0:
        return None
    return round(max(0, now["cpu_ms"] - before["cpu_ms"]) / 1_000 / span_s, 3)


def _busiest(row: views.Json) -> tuple[float, float, str]:
    return (-(row["cpu"] or 0.0), -(row["records_per_second"] or 0.0), row["name"])


def _print_once(found: views.Json, limit: int, output: Format) -> None:
    if output.is_document:
        print_document(output, found)
        return
    out.print(_tables(found, limit))


def _fitting(limit: int, found: views.Json) -> int:
    """The number of connectors that a live picture has room for: it cannot scroll."""
    room = max(1, out.height - len(found["workers"]) - 2 * len(found["silent"]) - _OWN_LINES)
    return min(limit or room, room)


def _tables(found: views.Json, limit: int) -> Any:
    connectors = found["connectors"][:limit] if limit else found["connectors"]
    left = len(found["connectors"]) - len(connectors)
    title = f"\nconnectors, the {len(connectors)} busiest of {len(found['connectors'])}" if left else "\nconnectors"
    cells = [_worker_cells(one) for one in found["workers"]]
    workers = table("\nworkers", _WORKER_COLUMNS, cells, numbers=_NUMBERS, drop=_DROP)
    cells = [_connector_cells(one) for one in connectors]
    silent = [
        Sentence(f"[yellow]worker {escape(worker_id)} does not answer:[/] {escape(why)}")
        for worker_id, why in found["silent"].items()
    ]
    busiest = table(title, _CONNECTOR_COLUMNS, cells, numbers=_NUMBERS, drop=_DROP)
    return Group(Sentence(summary_line(found["attention"])), *silent, workers, busiest)


def _worker_cells(one: views.Json) -> list[str]:
    return [
        escape(one["name"]),
        colored(one["state"]),
        str(one["tasks"]),
        count(one["runs"]),
        str(one["slots"]),
        *_used(one),
    ]


def _connector_cells(one: views.Json) -> list[str]:
    rate = one["records_per_second"]
    tasks = f"{one['running']}/{one['tasks']}"
    return [escape(one["name"]), tasks, count(None if rate is None else round(rate)), one["lag"], *_used(one)]


def _used(one: views.Json) -> list[str]:
    memory = one["memory_bytes"]
    return ["-" if one["cpu"] is None else f"{one['cpu']:.2f}", "-" if memory is None else f"{memory // _MIB:,} MiB"]
