"""The JVM that the tests of Spark's connectors share.

Owns its jars and its end. Invariant: one is started in this process for all of them, and no other test hears of its
jars.
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
    """Begun by the first run that writes; ended with the session, for a module has no next one to leave it to."""
    yield
    task_session.end()


@pytest.fixture(scope="module")
def spark(spark_of_this_process: None) -> Iterator[None]:
    """Runs in this process have the one JVM, with a database driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(task_session.JARS_VARIABLE, ",".join(ensure_jars("jdbc-driver").split(":")))
        # Derby, which comes with Spark, else writes a log into the folder that it is started in.
        patch.setenv("JDK_JAVA_OPTIONS", " ".join((*QUICK_JVM, "-Dderby.stream.error.file=/dev/null")))
        yield


@pytest.fixture(scope="module")
def spark_for_jars(spark_of_this_process: None) -> Iterator[None]:
    """Runs have a Spark that Delta, Iceberg and Kafka's source have jars for. Only for the soak: it is 490 MB."""
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
    """Runs have the drivers, and a JVM of this module's own."""
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
