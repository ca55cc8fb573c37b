"""Python daemon of Spark with our imports done: `python -m herdmesh.worker.spark.daemon pyspark.worker`.

Every run is a fork of this process, so imports and set-up are done once for all of them. Owns no state. Invariants: no
gRPC channel, Kafka client or thread of ours exists at a fork, because none would survive it. A failure of a step that
only makes runs begin faster does not prevent runs.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from pathlib import Path

#: Modules that a run needs. A missing module is skipped: the run that needs it gives a better error than a daemon that
#: does not start.
PRELOADED = (
    "pyspark.worker",
    "confluent_kafka.admin",
    "msgspec.json",
    "grpc",
    "herdmesh.worker.spark.entry",
    "herdmesh.connect.converters.avro.converter",
    "herdmesh.connect.converters.avro.columns",
    "herdmesh.connect.converters.json_schema.converter",
    "herdmesh.connect.converters.protobuf.converter",
    "herdmesh.connectors.file_stream.source.task",
    "herdmesh.connectors.file_stream.sink.task",
    "herdmesh.connectors.files.formats.csv",
    "herdmesh.connectors.files.formats.lines",
    "herdmesh.connectors.files.formats.parquet",
    "herdmesh.connectors.files.task",
)
#: Number of container objects: a batch has some thousands at once, Python's default is 700.
COLLECT_AFTER = 20_000
THREADS = Path("/proc/self/task")
REHEARSAL_TIMEOUT_S = 10.0
#: Argument of a daemon that creates no client before it forks.
UNREHEARSED = "unrehearsed"
_LOOK_S = 0.005
#: Modules for tracing: importing them takes half a second of a run otherwise.
TRACED = (
    "opentelemetry.trace",
    "opentelemetry.propagate",
    "opentelemetry.sdk.trace.export",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
)


def drop_archives() -> None:
    """Import pyspark from the environment instead of the zips that Spark puts into the path, and remove its jar from
    the path.

    Spark invalidates Python's import caches in every forked process, and each archive in them is then read again:
    170 ms of CPU for each run.
    """
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry in [entry for entry in sys.path_importer_cache if ".zip" in entry or ".jar" in entry]:
        del sys.path_importer_cache[entry]


def preload() -> list[str]:
    """Import everything a run needs; returns the modules that could not be imported."""
    # Otherwise importing numpy would start a thread for each core, for linear algebra that nobody uses here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from herdmesh.rpc.monitoring import tracing

    missing: list[str] = []
    for name in (*PRELOADED, *(TRACED if tracing.wanted() else ())):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name}: {error}")
    return missing


def collect_seldom() -> None:
    """Keep the garbage collector out of the record loops, where it costs 0.2 us a record under a schema.

    Present objects are frozen, in every fork: a collection that visited them would copy their pages for each. Records
    are freed without it, as they have no cycles. Other cycles are collected with the reports of a run
    (`engine.runtime.gc_schedule`), and once allocations exceed deallocations by `COLLECT_AFTER` objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


def rehearse() -> list[str]:
    """Create and close the clients that every run needs first: the libraries' set-up for the process is then present in
    each fork. A fork that does it itself takes 7 ms of processor time and 3 MB more until its record loop.

    Waits until the clients' threads are gone, since none survives a fork; does nothing where threads cannot be counted
    (not Linux). Returns the names of those that remain: then this process must not be forked.
    """
    from herdmesh.engine.librdkafka import clients
    from herdmesh.worker.run import run_link

    if not THREADS.is_dir():
        return []
    before = _threads()
    run_link.rehearse()
    clients.rehearse()
    deadline_s = time.monotonic() + REHEARSAL_TIMEOUT_S
    while stay := _threads() - before:  # gRPC's threads end within 30 ms, without notice
        if time.monotonic() > deadline_s:
            return sorted(_name(thread) for thread in stay)
        time.sleep(_LOOK_S)
    return []


def _threads() -> set[str]:
    return {thread.name for thread in THREADS.iterdir()}


def _name(thread: str) -> str:
    try:
        return (THREADS / thread / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "one that has just ended"


def main() -> None:
    """Become Spark's daemon."""
    drop_archives()
    preload()
    if UNREHEARSED not in sys.argv and (stay := rehearse()):
        print(
            f"threads of abandoned clients stay for {REHEARSAL_TIMEOUT_S:g} s: {', '.join(stay)}; beginning "
            "again without such clients, so each run takes some milliseconds longer to begin",
            file=sys.stderr,
            flush=True,
        )
        os.execv(sys.executable, [*sys.orig_argv, UNREHEARSED])
    collect_seldom()
    from pyspark.daemon import manager  # only now: from the environment, not from a zip

    from herdmesh.worker.spark import deaths

    deaths.watch_children()
    manager()


if __name__ == "__main__":
    main()
