"""A Spark session of one run: a JVM beside the run's process, for targets and sources that only Spark can use.

Owns starting it and its settings. No other module creates a session, except the worker for its own Spark
(`worker.spark.session`). There is one per process, because pyspark supports only one: a second `begin` with the same
settings returns the same session, one with other settings ends it first.

Invariant: the JVM ends with its process, however that ends: it exits when its standard input is closed.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

import pyspark
from py4j.java_gateway import JavaPackage  # pyright: ignore[reportMissingTypeStubs]
from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connect.spi import waits
from herdmesh.scratch import java_options
from herdmesh.sdk.spark import class_archive
from herdmesh.sdk.spark.py4j_log import limit_py4j_log

#: Jars for these sessions, comma separated: chosen by the worker's operator, not by connector configs. The worker's
#: setting `spark_jars`, passed to the processes of runs.
JARS_VARIABLE: Final = "HERDMESH_SPARK_JARS"
#: The Spark installation of these sessions (the worker's setting `spark_home`); empty = pyspark's own. The jar of a
#: format is built for one Spark version, and some formats have none for the worker's.
HOME_VARIABLE: Final = "HERDMESH_SPARK_HOME"
#: gRPC's own setting for forks. pyspark forks to start a JVM, and by default gRPC (the link between a run and its
#: worker) aborts one child in twenty before the JVM runs (grpcio 1.85: SIGABRT, "epoll_wait error").
_GRPC_FORKS: Final = "GRPC_ENABLE_FORK_SUPPORT"
_EXIT_TIMEOUT_S: Final = 10.0
_PLACE: Final = "this task's Spark"
_OF_SESSIONS: Final = ("spark.sql.", "spark.hadoop.")
"""Settings that are read when a session is created. They may be secrets, so they are not put on a command line."""
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z_.]+\]")
"""The error condition with which Spark begins its own error messages."""
_NOT_THERE: Final = re.compile(r"\[DATA_SOURCE_NOT_FOUND\]|No suitable driver")
_launcher: Any = java_gateway
"""Untyped, as py4j is."""
ERRORS: Final = (PySparkException, Py4JError, OSError)
"""The exceptions of calls into such a session."""
_lock = Lock()
_begun: dict[frozenset[tuple[str, str]], Future[SparkSession]] = {}


def environment(jars: str, home: str) -> Mapping[str, str]:
    """Settings of the worker's own Spark that pass the jars and the Spark installation to the processes of runs, and
    let these start a JVM."""
    variables = {JARS_VARIABLE: jars, HOME_VARIABLE: home, _GRPC_FORKS: "0"}
    return {f"spark.executorEnv.{name}": value for name, value in variables.items() if value}


def jars_folder() -> Path:
    """The folder of pyspark's jars: Spark's, Hadoop's client and Py4J."""
    return Path(pyspark.__file__).parent / "jars"


def begin(memory: str, more: Mapping[str, str]) -> Future[SparkSession]:
    """Start the session with this heap (`512m`) and these further Spark settings; returns at once."""
    conf = _conf(memory, more)
    wanted = frozenset(conf.items())
    with _lock:
        found = _begun.get(wanted)
        if found is not None:
            return found
        before = list(_begun.values())
        _begun.clear()
        session: Future[SparkSession] = Future()
        _begun[wanted] = session
    Thread(target=_begin, args=(conf, before, session), name="start Spark", daemon=True).start()
    return session


def session_of(begun: Future[SparkSession]) -> SparkSession:
    """The session; waits until it has started. Raises RetriableError when the JVM did not start."""
    try:
        with waits.on(_PLACE, "starting its JVM and session"):
            return begun.result()
    except Exception as error:
        with _lock:
            _begun.clear()
        raise RetriableError(f"this task's Spark did not start: {error}", waits_for=_PLACE) from error


def has_failed(begun: Future[SparkSession]) -> bool:
    """True when the JVM did not start: call `begin` again, this future will not change."""
    return begun.done() and begun.exception() is not None


def arrow_of(session: SparkSession, rows: Any, schema: Any) -> Any:
    """A pyarrow Table of rows in the JVM: a `java.util.List` of Spark's `Row`, and their `StructType`."""
    untyped: Any = session
    return DataFrame(untyped._jsparkSession.createDataFrame(rows, schema), session).toArrow()


def java_class(session: SparkSession, name: str) -> Any:
    """A Java class by its full name. Raises ConfigError when no jar of the worker has it."""
    untyped: Any = session.sparkContext
    found = getattr(untyped._jvm, name)
    if isinstance(found, JavaPackage):
        fix = "give the worker its jar (setting spark_jars)"
        raise ConfigError(f"{name} is not on the class path of this task's Spark", fix=fix)
    return found


def end() -> None:
    """Stop the session of this process, if there is one, and its JVM."""
    with _lock:
        before = list(_begun.values())
        _begun.clear()
    for session in before:
        if session.exception() is None:
            _end(session.result())


@contextmanager
def errors_translated(what: str, field: str, waits_for: str) -> Generator[None]:
    """Turn Spark's exceptions into Connect's, and report the wait meanwhile (`herdmesh.connect.spi.waits`). `what`: the
    operation, for messages; `waits_for`: the target or source, as waits name it.

    Raises ConfigError for errors that stay until the config or the target is changed (a missing format, columns that do
    not fit), RetriableError for all others.
    """
    try:
        with waits.on(waits_for, what):
            yield
    except (AnalysisException, IllegalArgumentException) as error:
        raise ConfigError(f"{what}: {cause_of(error)}", field=field) from error
    except ERRORS as error:
        if _NOT_THERE.search(str(error)):
            fix = "give the worker its jar (setting spark_jars)"
            raise ConfigError(f"{what}: {cause_of(error)}", field=field, fix=fix) from error
        raise RetriableError(f"{what}: {cause_of(error)}", waits_for=waits_for) from error


def cause_of(error: Exception) -> str:
    """The message of Spark, or of the library that it called, without the Java stack frames."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, PySparkException):
        lines = lines[:1]
    raised = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    if raised and _CONDITION.search(raised[0]):
        return raised[0]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1:] or raised[:1] or lines[:1] or [type(error).__name__])[0]


def _begin(conf: Mapping[str, str], before: list[Future[SparkSession]], session: Future[SparkSession]) -> None:
    try:
        for other in before:
            if other.exception() is None:
                _end(other.result())
        session.set_result(_start(conf))
    except BaseException as error:  # noqa: BLE001 - raised again by `session_of`
        session.set_exception(error)


def _start(conf: Mapping[str, str]) -> SparkSession:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    limit_py4j_log(logging.WARNING)
    _forget_gateway()
    launched = [(name, value) for name, value in conf.items() if not name.startswith(_OF_SESSIONS)]
    with _home():
        gateway = _launcher.launch_gateway(SparkConf(loadDefaults=False).setAll(launched))
    try:
        settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
        return SparkSession(SparkContext(gateway=gateway, conf=settings))
    except BaseException:
        _end_jvm(gateway)
        raise


@contextmanager
def _home() -> Generator[None]:
    """While inside, pyspark launches the Spark installation of the worker's setting `spark_home`."""
    before, wanted = os.environ.get("SPARK_HOME"), os.environ.get(HOME_VARIABLE, "").strip()
    if wanted:
        os.environ["SPARK_HOME"] = wanted
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ["SPARK_HOME"]
        elif before is not None:
            os.environ["SPARK_HOME"] = before


def _end(session: SparkSession) -> None:
    gateway: Any = session.sparkContext._gateway  # pyright: ignore[reportPrivateUsage] - its only access
    session.stop()
    _end_jvm(gateway)


def _end_jvm(gateway: Any) -> None:
    _forget_gateway()
    gateway.shutdown()
    gateway.proc.stdin.close()
    with waits.on(_PLACE, "shutting down its JVM"):
        gateway.proc.wait(_EXIT_TIMEOUT_S)


def _forget_gateway() -> None:
    """Remove pyspark's gateway, which it keeps after the JVM has ended."""
    untyped: Any = SparkContext
    untyped._gateway = untyped._jvm = None


def _conf(memory: str, more: Mapping[str, str]) -> dict[str, str]:
    log_config = resources.files("herdmesh.sdk.spark").joinpath("log4j2.properties")
    # TMPDIR of a run's process: its worker's scratch folder, which goes with the worker whatever ends this JVM.
    folder = tempfile.gettempdir()
    tmpdir, no_counters = java_options(folder)
    archive = "" if os.environ.get(HOME_VARIABLE, "").strip() else class_archive.use_options()
    jars = os.pathsep.join(filter(None, (jar.strip() for jar in os.environ.get(JARS_VARIABLE, "").split(","))))
    return {
        "spark.master": "local[1]",
        "spark.app.name": "herdmesh-task",
        "spark.submit.deployMode": "client",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": (
            f'-XX:+UseSerialGC "{tmpdir}" {no_counters} -Dlog4j2.configurationFile={log_config} {archive}'.rstrip()
        ),
        "spark.local.dir": folder,
        **({"spark.driver.extraClassPath": jars} if jars else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        # A run's process belongs to an executor, where Spark refuses to create sessions without this setting.
        "spark.executor.allowSparkContext": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        **more,
    }
