"""Fixtures for every test of the repository. Owns the one broker of a test session, the one with users and access rules
that tests of refusals share, the one PostgreSQL server, and nothing else.

A test that takes `kafka`, `kafka_bootstrap` or `guarded` counts as marked `kafka`; one that starts its own broker
(`herdmesh.devstack.broker.Broker`), as all tests that kill one do, carries `@pytest.mark.own_broker`, and with it that
mark too. `make test-fast` runs the other tests.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from herdmesh.devstack.broker import QUICK_JVM, Broker
from herdmesh.devstack.postgres import Postgres
from tests.support.guarded_broker import GuardedBroker
from tests.support.topic_names import topic_names

# The time of an example depends on the load of the machine, not on the property.
settings.register_profile("herdmesh", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("herdmesh")

# The contexts of the user who runs the tests name meshes that no test may touch. The folder is never created.
os.environ["XDG_CONFIG_HOME"] = str(Path(tempfile.gettempdir()) / "herdmesh-tests-without-user-config")

# These plugins decide which test runs in which of the three processes of `make test`, and in what order.
pytest_plugins = ["tests.support.lanes", "tests.support.leftovers"]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The session's broker, on any free port, with data in a temporary folder. Never stop or kill this one.

    It allows shorter election sessions than Kafka's default of 6 s, for tests that do not measure a take-over. It keeps
    records for ever: some tests write records with old timestamps, and retention, which runs every five minutes, would
    delete them.
    """
    settings = {"group.min.session.timeout.ms": "1000", "log.retention.ms": "-1"}
    broker = Broker(tmp_path_factory.mktemp("kafka"), port=0, settings=settings, jvm=QUICK_JVM)
    asyncio.run(broker.start())
    try:
        yield broker
    finally:
        asyncio.run(broker.stop())


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka: Broker) -> str:
    """`127.0.0.1:PORT` of the session's broker."""
    return kafka.bootstrap


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    """The session's broker with authentication. Never stop or kill this one."""
    broker = GuardedBroker(tmp_path_factory.mktemp("guarded-kafka"))
    asyncio.run(broker.start())
    try:
        yield broker
    finally:
        asyncio.run(broker.stop())


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """The session's PostgreSQL server. Never stop or kill this one: it does not sync to disk and would lose data."""
    settings = {"fsync": "off", "max_prepared_transactions": "4", "max_replication_slots": "64"}
    server = Postgres(tmp_path_factory.mktemp("postgres"), settings=settings)
    asyncio.run(server.start())
    try:
        yield server
    finally:
        asyncio.run(server.stop())


@pytest.fixture
def tmp_database(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    """The DSN of an empty database of the test's own. The test's name is in its name, for the server's log."""
    name = topic_names(request.node.name)("database")[-60:]
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        # It takes half the time of the default of newer servers; older servers have no other strategy.
        strategy = " STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""
        connection.execute(f'CREATE DATABASE "{name}"{strategy}'.encode())
    return postgres.dsn.removesuffix("postgres") + name


@pytest.fixture
def tmp_topic(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Names for topics, groups and connectors, unique in the session: `tmp_topic()`, `tmp_topic("out")`.

    The test's own name is in each, so that a broker's log shows the test.
    """
    return topic_names(request.node.name)
