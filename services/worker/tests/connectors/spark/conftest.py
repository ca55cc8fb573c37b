"""The JVM that the tests of Spark's connectors share.

Owns its jars and its end. Invariant: one is started in this process for all of them, and no other test hears of its
jars.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from herdmesh.devstack.broker import QUICK_JVM
from herdmesh.devstack.jars import ensure_jars
from herdmesh.worker.spark import task_session

_JARS = ("jdbc-driver", "spark-kafka")


@pytest.fixture(scope="session")
def spark_of_this_process() -> Iterator[None]:
    """Begun by the first run that writes; ended with the session, for a module has no next one to leave it to."""
    yield
    task_session.end()


@pytest.fixture(scope="module")
def spark(spark_of_this_process: None) -> Iterator[None]:
    """Runs in this process have the one JVM, with a database driver and Kafka's source."""
    with pytest.MonkeyPatch.context() as patch:
        jars = [one for group in _JARS for one in ensure_jars(group).split(":")]
        patch.setenv(task_session.JARS_VARIABLE, ",".join(jars))
        # Derby, which comes with Spark, else writes a log into the folder that it is started in.
        patch.setenv("JDK_JAVA_OPTIONS", " ".join((*QUICK_JVM, "-Dderby.stream.error.file=/dev/null")))
        yield
