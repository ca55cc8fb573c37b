"""Spark's Python daemon with our imports done: `python -m herdmesh.worker.spark.daemon pyspark.worker`.

Every run is a fork of this process, so what is imported here is imported once for all of them. Owns no state.
Invariant: imports only. No gRPC channel, Kafka client or thread of ours exists before a fork, because none would
survive it.
"""

from __future__ import annotations

import gc
import importlib
import sys

#: What a run needs. Found missing, a module is skipped: the run that needs it says so better than a daemon that does
#: not start.
PRELOADED = (
    "pyspark.worker",
    "confluent_kafka.admin",
    "msgspec.json",
    "grpc",
    "herdmesh.worker.spark.entry",
    "herdmesh.connect.converters.avro",
    "herdmesh.connect.converters.json_schema",
    "herdmesh.connect.converters.protobuf",
    "herdmesh.worker.connectors.file_stream",
    "herdmesh.worker.connectors.parquet_task",
)
#: Where runs are traced: half a second of a run otherwise.
TRACED = (
    "opentelemetry.trace",
    "opentelemetry.propagate",
    "opentelemetry.sdk.trace.export",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
)


def drop_archives() -> None:
    """Take pyspark from the environment instead of the zips, and drop the jar, that Spark puts into the path.

    Spark invalidates Python's import caches in every forked process, and each archive in them is then read again:
    170 ms of CPU for each run.
    """
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    for entry in [entry for entry in sys.path_importer_cache if ".zip" in entry or ".jar" in entry]:
        del sys.path_importer_cache[entry]


def preload() -> list[str]:
    """Import everything a run needs; returns what could not be imported."""
    from herdmesh.rpc import tracing

    missing: list[str] = []
    for name in (*PRELOADED, *(TRACED if tracing.wanted() else ())):
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name}: {error}")
    return missing


def main() -> None:
    """Become Spark's daemon."""
    drop_archives()
    preload()
    # What is there now stays, in every fork: a collector that looked through it would copy its pages for each.
    gc.collect()
    gc.freeze()
    from pyspark.daemon import manager  # only now: from the environment, not from a zip

    manager()


if __name__ == "__main__":
    main()
