"""Builder of the class-data archive with which every worker of this environment starts fast: `python -m
herdmesh.worker.spark`.

Part of set-up (or of building an image): starts one Spark as a worker does and lets its JVM write the archive when it
ends, some 15 s. Does nothing if the archive exists. A failure is printed, and the exit code is still 0: workers only
start slower.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from herdmesh.sdk.spark import class_archive
from herdmesh.worker.errors import SparkUnavailable
from herdmesh.worker.spark.session import SparkHost, spark_conf

#: The JVM writes 110 MB, after it has checked every class again.
_WRITE_TIMEOUT_S: Final = 90.0
_MEMORY: Final = "512m"


async def _write(fresh: Path) -> None:
    host = SparkHost(
        spark_conf("", 1, _MEMORY, jvm_options=class_archive.write_options(fresh)), exit_timeout_s=_WRITE_TIMEOUT_S
    )
    try:
        await host.start()
        await host.open_session()
    finally:
        await host.stop(_WRITE_TIMEOUT_S)
    if host.jvm_exit_code != 0:
        raise SparkUnavailable(f"its JVM did not end in order (exit code {host.jvm_exit_code})")


def main() -> int:
    archive = class_archive.archive_path()
    if archive.is_file():
        return 0
    print("Preparing Spark for fast starts (once)", flush=True)
    # Renamed when complete, so that no worker reads a partial file.
    fresh = archive.with_suffix(f".{os.getpid()}.new")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        asyncio.run(_write(fresh))
        fresh.replace(archive)
    except (OSError, SparkUnavailable) as error:
        print(f"Spark will start without its class-data archive: {error}", file=sys.stderr)
    finally:
        fresh.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
