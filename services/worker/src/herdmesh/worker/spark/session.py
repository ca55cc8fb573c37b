"""SparkContext of the worker process, and its jobs.

Owns the JVM: starts it, detects its death, ends it. A SparkSession on top, which jobs without tables do not need, would
cost a third of the JVM's start (0.85 s of processor time) and 18 MB. All calls into it block and are made in threads:
one that starts and stops the context, one per running job. Invariant: started means that a first job went through a
warm Python daemon, so a task's first run does not pay for starting anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError, Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import RDD, SparkConf, SparkContext
from pyspark.errors.exceptions.captured import install_exception_handler
from pyspark.sql import SparkSession

from herdmesh.scratch import WORKER, ScratchFolder, java_options, temporary_files_in
from herdmesh.sdk.spark import class_archive
from herdmesh.sdk.spark.py4j_log import limit_py4j_log
from herdmesh.worker.errors import RunLost, SparkUnavailable
from herdmesh.worker.run import Launch
from herdmesh.worker.spark import deaths
from herdmesh.worker.spark.entry import LAUNCH_PROPERTY, execute_in_partition
from herdmesh.worker.threads import in_thread

#: Spark's message about a process that is gone without a result.
_CRASHED: Final = "Python worker exited unexpectedly"
_ENV: Final = "spark.executorEnv"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
START_TOLD_AFTER_S = 15.0
"""A longer start of Spark is logged."""
_TOLD_AGAIN_S = 60.0
_SOCKET_FOLDER_BYTES_MAX: Final = 60
_EXITS_WITHIN_S = 2.0
"""A JVM that answers no call has ended, or ends within this time."""
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def spark_conf(master: str, processes: int, driver_memory: str, jvm_options: str | None = None) -> Mapping[str, str]:
    """Spark's settings, for so many concurrent processes. The JVM only schedules: no record passes through it, so it is
    small and compiles cheaply. `jvm_options` replaces the options that use the class-data archive.
    """
    archive = class_archive.use_options() if jvm_options is None else jvm_options
    log_config = resources.files("herdmesh.sdk.spark").joinpath("log4j2.properties")
    return {
        "spark.master": master or f"local[{processes}]",
        "spark.app.name": "herdmesh-worker",
        "spark.submit.deployMode": "client",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": driver_memory,
        # Serial collector and C1 only: 0.8 s less to start, and no collector threads beside the record loops. Some 45
        # MB of the heap are live. By default a JVM fills a young generation of a third of 1/64 of the machine's memory
        # before its first collection, and keeps the pages: 100 MB more here. Spark refuses heaps below 450 MB.
        "spark.driver.extraJavaOptions": (
            "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms80m -Xmn16m "
            f"-Dlog4j2.configurationFile={log_config} {archive}".rstrip()
        ),
        # Each task's code is one block, for which Spark takes this much of the heap at once: by default 4 MB.
        "spark.broadcast.blockSize": "64k",
        # Memory of finished jobs, whose pages nobody sees; by default a thousand jobs.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "50",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        # The worker handles a failed run: Spark must not start a second process for the same run id.
        "spark.task.maxFailures": "1",
        "spark.speculation": "false",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.python.daemon.module": "herdmesh.worker.spark.daemon",
        # A process per run: it is a fork of the warm daemon, and everything a run leaves behind ends with it.
        "spark.python.worker.reuse": "false",
        "spark.python.task.killTimeout": "200ms",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.memory": "512m",
        # A crash leaves its Python stacks, which Spark then adds to the error.
        "spark.python.worker.faulthandler.enabled": "true",
    }


def _in_folder(conf: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The settings with that folder for all temporary files: Spark's blocks, the JVM's files, and those of the Python
    processes, including traces of their crashes. A kill leaves only this folder, which the next worker removes.
    """
    tmpdir, no_counters = java_options(folder)
    return {
        **conf,
        "spark.local.dir": str(folder),
        # The path of a socket has at most some 100 bytes, of which Spark's own part takes 42. Without these sockets
        # Spark and its Python processes use TCP on the loopback address.
        **_sockets_in(folder),
        _JAVA_OPTIONS: f'{conf.get(_JAVA_OPTIONS, "")} "{tmpdir}" {no_counters}'.strip(),
        f"{_ENV}.TMPDIR": str(folder),
    }


def _sockets_in(folder: Path) -> dict[str, str]:
    name = "spark.python.unix.domain.socket"
    if len(os.fsencode(folder)) < _SOCKET_FOLDER_BYTES_MAX:
        return {f"{name}.dir": str(folder)}
    return {f"{name}.enabled": "false"}


async def _log_wait(master: str) -> None:
    """Log that Spark's start waits, until cancelled. Spark waits for ever, without a message, for a master that has no
    room for an executor; the worker does not serve meanwhile, so only its log can show it.
    """
    begun = time.monotonic()
    pause_s = START_TOLD_AFTER_S
    while True:
        await asyncio.sleep(pause_s)  # waits: to log the wait
        pause_s = min(2 * pause_s, _TOLD_AGAIN_S)
        _log.warning(
            "spark_start_waits",
            seconds=round(time.monotonic() - begun),
            spark_master=master,
            next="the worker serves once Spark has run a first job: see that spark_master has a live worker with a core"
            " and memory left for an executor (its web page lists them), and reaches this machine",
        )


class SparkHost:
    """The context and its jobs. `lost` is set when the JVM died unexpectedly. `exit_timeout_s`: how long the JVM may
    take to end once its context is stopped.
    """

    def __init__(self, conf: Mapping[str, str], exit_timeout_s: float = 3.0) -> None:
        self._conf = conf
        self._exit_timeout_s = exit_timeout_s
        self._context: SparkContext | None = None
        self._one: RDD[None] | None = None
        """One partition that executes the launch in the job's properties; every job derives an RDD of its own from it.
        """
        self._jvm: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._deaths = deaths.Deaths()
        self._scratch: ScratchFolder | None = None
        """All temporary files of the JVM, its Python processes and their children."""
        self._watch: asyncio.Task[None] | None = None
        self.lost = asyncio.Event()

    @property
    def jvm_pid(self) -> int:
        """Process id of the JVM, 0 when there is none."""
        return self._jvm.pid if self._jvm is not None else 0

    @property
    def jvm_exit_code(self) -> int | None:
        """Exit code of a JVM that ended: 0 = normal, positive = an error, negative = the signal that killed it."""
        return self._jvm.poll() if self._jvm is not None else None

    async def start(self) -> None:
        """Start the JVM and the context and run a first job. Raises SparkUnavailable."""
        begun = time.monotonic()
        try:
            self._scratch = ScratchFolder(WORKER)
            socket = await self._deaths.start(self._scratch.path)
            self._conf = {**_in_folder(self._conf, self._scratch.path), f"{_ENV}.{deaths.SOCKET_VARIABLE}": socket}
            waiting = asyncio.create_task(_log_wait(self._conf.get("spark.master", "")), name="wait for Spark")
            try:
                await in_thread("spark start", self._start)
            finally:
                waiting.cancel()
        except Exception as error:
            raise SparkUnavailable(f"Spark did not start: {error}") from error
        self._watch = asyncio.create_task(self._watch_jvm(), name="watch the JVM")
        _log.info("spark_ready", seconds=round(time.monotonic() - begun, 1), jvm_pid=self.jvm_pid)

    async def open_session(self) -> None:
        """Have the JVM load the classes that only a task's own Spark needs (`task_session`), for the archive of
        both."""
        await in_thread("spark session", SparkSession.builder.getOrCreate)

    async def run_job(self, launch: Launch) -> None:
        """Run one process as one Spark task; returns when it is over. Raises RunLost when Spark reports that it
        failed."""
        try:
            await in_thread(f"process {launch.process_id}", lambda: self._run_job(launch))
        except Exception as error:
            # Py4J raises many types, also for a dead JVM. Reading the error's text calls the JVM, hence the thread.
            said = await in_thread(f"end of {launch.process_id}", lambda error=error: self._text_of(error))
            raise await self._lost(launch, said.strip() or type(error).__name__) from error

    def cancel(self, process_id: str) -> None:
        """Have Spark kill the process, which takes half a second. Never blocks."""
        task = asyncio.create_task(in_thread(f"cancel {process_id}", lambda: self._cancel(process_id)))
        task.add_done_callback(_log_failed_cancel)

    async def stop(self, timeout_s: float) -> None:
        """Stop the context, then the JVM. Bounded: the JVM is killed when it takes longer."""
        try:
            await self._end(timeout_s)
        finally:
            if self._scratch is not None:
                self._scratch.close()

    async def _end(self, timeout_s: float) -> None:
        self._stopping = True
        self._deaths.close()
        if self._watch is not None:
            self._watch.cancel()
        if self._jvm is None or self._jvm.poll() is not None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await in_thread("spark stop", self._stop)
        except Exception as error:  # noqa: BLE001 - Py4J raises many types, and the JVM is killed below in any case
            _log.warning("spark_stop_failed", error=str(error) or f"not done in {timeout_s:g} s")
        if self._jvm.poll() is None:
            self._jvm.kill()

    async def _lost(self, launch: Launch, said: str) -> RunLost:
        """The error for a process that ended without a result, with its exit status and stacks as far as known."""
        _, crashed, rest = said.partition(_CRASHED)
        status = await self._deaths.status_of(launch.process_id) if crashed else None
        if status is None:
            return RunLost(_cause(said))
        # Spark adds the process' stacks, which Python writes for signals such as SIGSEGV, and then frames of the JVM.
        stacks = rest.partition("Fatal Python error")
        trace = (stacks[1] + stacks[2]).partition("\n\tat ")[0].strip()
        return RunLost(deaths.words_for(status), own_doing=deaths.is_own_doing(status), trace=trace)

    # --- in threads

    def _start(self) -> None:
        assert self._scratch is not None
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        # If set, they would replace the interpreter of our own environment.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        limit_py4j_log(logging.CRITICAL)
        conf = SparkConf(loadDefaults=False).setAll(list(self._conf.items()))
        # Options of the small JVM that only computes the command line of Spark's JVM.
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", java_options(self._scratch.path)[1])
        with temporary_files_in(self._scratch.path):
            context = self._context = SparkContext(conf=conf)
        # The server of accumulators, which nothing here uses: it would print a traceback when the JVM ends first.
        server: Any = context._accumulatorServer  # pyright: ignore[reportPrivateUsage] - its only access
        server.handle_error = _ignore
        install_exception_handler()  # errors of the JVM as Python exceptions, as a session has them
        gateway: Any = context._gateway  # pyright: ignore[reportPrivateUsage] - its only access
        self._jvm = gateway.proc
        self._one = context.parallelize([0], 1).mapPartitions(execute_in_partition)
        _count(self._one)

    def _run_job(self, launch: Launch) -> None:
        assert self._context is not None
        assert self._one is not None
        context = self._context
        context.addJobTag(launch.process_id)
        # With the launch in the function itself, each job would have a function of its own to pickle and to transfer in
        # twenty calls of Py4J. Properties are the thread's, and the thread is this job's.
        context.setLocalProperty(LAUNCH_PROPERTY, launch.to_text())
        _count(self._one)

    def _cancel(self, process_id: str) -> None:
        assert self._context is not None
        self._context.cancelJobsWithTag(process_id)

    def _stop(self) -> None:
        context = self._context
        if context is None:
            return
        gateway: Any = context._gateway  # pyright: ignore[reportPrivateUsage] - its only access
        context.stop()
        gateway.shutdown()
        if self._jvm is not None and self._jvm.stdin is not None:
            # The end of its input is the JVM's sign that its Python is gone.
            self._jvm.stdin.close()
            self._jvm.wait(self._exit_timeout_s)

    # --- the JVM

    def _text_of(self, error: Exception) -> str:
        """Text of a Py4J error. Reading it calls the JVM, which may have ended meanwhile: such calls fail with texts
        like "Connection refused" or "TypeUtil does not exist in the JVM".
        """
        try:
            said = str(error)
        except Exception:  # noqa: BLE001 - Py4J raises many types
            said = ""
        answered = isinstance(error, Py4JJavaError) or not isinstance(error, Py4JError | OSError)
        if said and answered:
            return said
        assert self._jvm is not None
        try:
            return f"Spark's JVM ended with exit code {self._jvm.wait(_EXITS_WITHIN_S)}"
        except subprocess.TimeoutExpired:
            return said

    async def _watch_jvm(self) -> None:
        jvm = self._jvm
        assert jvm is not None
        code = await in_thread("watch the JVM", jvm.wait)
        if not self._stopping:
            _log.error("spark_lost", jvm_pid=jvm.pid, exit_code=code)
            self.lost.set()


def _count(rdd: RDD[None]) -> None:
    """Execute the RDD with a count in the JVM: no result is returned, so none is served to this Python. Not by
    `count()`, which has Spark read the classes SparkContext and RDD byte by byte at each call to find what its
    functions refer to: a third of a launch's processor time in the JVM.

    Uses an RDD that no other job has: when a job fails, Spark fails every other job over the same RDD too, and kills
    their processes. One crashed run took all runs of its worker with it.
    """
    job: Any = rdd
    job._jrdd.coalesce(1).countAsync().get()  # the only way to it


def _cause(said: str) -> str:
    """Spark's own reason, out of pages of Java frames."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in lines:
        for mark in ("SparkException: ", "PythonException: ", "RunLost: "):
            if mark in line:
                return line.partition(mark)[2] or line
    return lines[0]


def _ignore(*_request: object) -> None:
    """Do nothing."""


def _log_failed_cancel(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.warning("cancel_failed", error=str(task.exception()))
