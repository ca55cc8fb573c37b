"""Fixtures with the JVM that the tests of Spark's connectors share.

Owns its jars and its end. Invariant: one JVM is started in
this process for all of them, and no other test has its jars.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from herdmesh.devstack.broker import QUICK_JVM
from herdmesh.devstack.jars import ensure_jars
from herdmesh.sdk.spark import task_session
from libs.connectors.tests.spark import lake
from tests.support.mariadb import MariaDb


@pytest.fixture(scope="session")
def spark_of_this_process() -> Iterator[None]:
    """Start Spark at the first run that writes; stop it with the
    session, because a module cannot leave it to the next one.
    """
    yield
    task_session.end()


@pytest.fixture(scope="module")
def spark(spark_of_this_process: None) -> Iterator[None]:
    """Give runs in this process the one JVM, with a database driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(task_session.JARS_VARIABLE, ",".join(ensure_jars("jdbc-driver").split(":")))
        # Otherwise Derby, which comes with Spark, writes a log to the folder in which it is started.
        patch.setenv("JDK_JAVA_OPTIONS", " ".join((*QUICK_JVM, "-Dderby.stream.error.file=/dev/null")))
        yield


@pytest.fixture(scope="module")
def spark_for_jars(spark_of_this_process: None) -> Iterator[None]:
    """Give runs a Spark with jars for Delta, Iceberg and Kafka's source. Only for the soak: it is 490 MB."""
    home = lake.home()
    jars = [one for group in ("lakehouse", "spark-kafka") for one in ensure_jars(group).split(":")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(task_session.JARS_VARIABLE, ",".join(jars))
        patch.setenv(task_session.HOME_VARIABLE, str(home))
        patch.setenv("JDK_JAVA_OPTIONS", " ".join(QUICK_JVM))
        yield
        task_session.end()


@pytest.fixture(scope="module")
def spark_for_databases(spark_of_this_process: None) -> Iterator[None]:
    """Give runs the drivers, and a JVM of this module alone."""
    task_session.end()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(task_session.JARS_VARIABLE, ",".join(ensure_jars("jdbc-more").split(":")))
        patch.setenv("JDK_JAVA_OPTIONS", " ".join(QUICK_JVM))
        yield
        task_session.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    found = MariaDb(tmp_path_factory.mktemp("mariadb"))
    found.start()
    try:
        yield found
    finally:
        found.stop()
