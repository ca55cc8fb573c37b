"""The check of the demo's Parquet with plain Spark, in a process of its own; its result is one JSON line.

python -m herdmesh.cli.demo.read_back FOLDER

All temporary files are in TMPDIR, which the caller creates and removes, even when this process is killed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from pyspark.sql import SparkSession

from herdmesh.scratch import java_options

SAMPLE_COLUMNS = ("id", "carrier", "flight", "origin", "dest", "departure_delay_min", "tailnum", "source")


def main(folder: str) -> None:
    """Count rows and ids, and read five rows, of all Parquet files in `folder`."""
    tmpdir, no_counters = java_options(tempfile.gettempdir())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", no_counters)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", tempfile.gettempdir())
        .config("spark.driver.extraJavaOptions", f'"{tmpdir}" {no_counters}')
        .getOrCreate()
    )
    flights = spark.read.option("mergeSchema", "true").parquet(folder)
    rows = flights.count()
    distinct = flights.select("id").distinct().count()
    sample = [row.asDict() for row in flights.select(*SAMPLE_COLUMNS).orderBy("id").limit(5).collect()]
    print(json.dumps({"rows": rows, "distinct_ids": distinct, "sample": sample}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
