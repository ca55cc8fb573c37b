"""The one mesh that end-to-end and fault tests share: broker, stores, herder and two workers with Spark and SQLite's
driver.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from herdmesh.cli.errors import CommandError
from herdmesh.devstack.broker import Broker
from herdmesh.devstack.jars import ensure_jars
from herdmesh.sdk.spark import task_session
from tests.support.mesh import Mesh, running_mesh


@pytest.fixture(scope="session")
def workers_temporary() -> Iterator[Path]:
    """The temporary folder (TMPDIR) of the workers of `mesh`: short, for names of sockets."""
    with tempfile.TemporaryDirectory(prefix="w-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_mesh(
    kafka: Broker, tmp_path_factory: pytest.TempPathFactory, workers_temporary: Path
) -> AsyncIterator[Mesh]:
    """The mesh of the session. Tests use `mesh`, which is this one in good health."""
    env = {
        "TMPDIR": str(workers_temporary),
        task_session.JARS_VARIABLE: ",".join(ensure_jars("jdbc-driver").split(":")),
    }
    async with running_mesh(tmp_path_factory.mktemp("mesh"), kafka, ends_by_force=True, worker_env=env) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def mesh(shared_mesh: Mesh, tmp_path: Path) -> AsyncIterator[Mesh]:
    """The shared mesh with every service serving and every worker ready for tasks; connectors created by the test are
    deleted afterwards.
    """
    await shared_mesh.until_serving()
    await shared_mesh.until_workers()
    before = set(shared_mesh.board.connectors)
    yield shared_mesh
    for name in set(shared_mesh.board.connectors) - before:
        try:
            await shared_mesh.delete(name)
        except CommandError as error:
            if error.reason != "CONNECTOR_NOT_FOUND":  # the test deleted it, and the board has not got the event yet
                raise
