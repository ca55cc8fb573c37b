"""Spark's Python daemon with our imports done: `python -m herdmesh.worker.spark.daemon pyspark.worker`.

Every run is a fork of this process, so what is imported here is imported once for all of them. Owns no state.
Invariant: imports only. No gRPC channel, Kafka client or thread of ours exists before a fork, because none would
survive it.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

#: Found missing, a module is skipped: the run that needs it says so better than a daemon that does not start.
PRELOADED = (
    "pyspark.worker",
    "confluent_kafka.admin",
    "msgspec.json",
    "grpc",
    "herdmesh.worker.spark.entry",
    "herdmesh.worker.connectors.file_stream",
    "herdmesh.worker.connectors.parquet",
)


def preload() -> list[str]:
    """Import everything a run needs; returns what could not be imported."""
    missing: list[str] = []
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name}: {error}")
    return missing


if __name__ == "__main__":
    preload()
    manager()
