"""Spark application of a connector's own: `python -m herdmesh.worker.spark.application FD`, started by its worker.

Owns one `SparkHost`, beside the worker's, and nothing else: only the worker knows the purpose of a process
(`effects.runs.applications`). Invariant: it ends, with its JVM and everything that runs there, when its connection to
the worker ends, and when its JVM does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from herdmesh.rpc.monitoring.resource import name_process
from herdmesh.rpc.process import configure_logging, log_identity
from herdmesh.worker.application_messages import (
    LINE_BYTES_MAX,
    TO_APPLICATION,
    Begin,
    Begun,
    Cancel,
    Ended,
    Execute,
    line_of,
)
from herdmesh.worker.errors import RunLost, SparkUnavailable
from herdmesh.worker.run import Launch
from herdmesh.worker.spark.session import SparkHost

_STOP_S = 6.0


async def serve(line: socket.socket) -> None:
    """Execute commands from the connection, until it ends or the JVM does."""
    reader, writer = await asyncio.open_connection(sock=line, limit=LINE_BYTES_MAX)
    begin = TO_APPLICATION.decode(await reader.readline())
    assert isinstance(begin, Begin)
    spark = SparkHost(begin.conf)
    try:
        await spark.start()
    except SparkUnavailable as error:
        writer.write(line_of(Begun(error=str(error))))
        await writer.drain()
        return
    writer.write(line_of(Begun(spark.jvm_pid)))
    working = asyncio.create_task(_work(spark, reader, writer))
    lost = asyncio.create_task(spark.lost.wait())
    await asyncio.wait((working, lost), return_when=asyncio.FIRST_COMPLETED)
    await spark.stop(_STOP_S)


async def _work(spark: SparkHost, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    jobs: set[asyncio.Task[None]] = set()
    while said := await reader.readline():
        message = TO_APPLICATION.decode(said)
        if isinstance(message, Cancel):
            spark.cancel(message.process_id)
        elif isinstance(message, Execute):
            job = asyncio.create_task(_execute(spark, message.launch, writer))
            jobs.add(job)
            job.add_done_callback(jobs.discard)


async def _execute(spark: SparkHost, launch: Launch, writer: asyncio.StreamWriter) -> None:
    try:
        await spark.run_job(launch)
        ended = Ended(launch.process_id)
    except RunLost as lost:
        ended = Ended(launch.process_id, str(lost), lost.own_doing, lost.trace)
    writer.write(line_of(ended))


def main() -> None:
    """Entry point. Ignores Ctrl-C of the worker's terminal: the worker handles it, and then ends the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    name_process("herdmesh.worker.spark")
    configure_logging(os.environ.get("HERDMESH_LOG_LEVEL", "info"))
    log_identity()
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
    # Threads that wait for a dead JVM must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
