"""Tests that a stack that cannot start reports the reason at once, with the message of the failed part."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from herdmesh.devstack.broker import Broker
from herdmesh.devstack.existing_kafka import ExistingKafka
from herdmesh.devstack.jars import BROKER_MB, ensure_jars
from herdmesh.devstack.stack import ServiceNotReady, Stack, StackSettings
from herdmesh.rpc.server import Server, ServiceRegistration

_NO_SERVICE = ServiceRegistration(None, lambda _servicer, _server: None, "of.nobody")


async def test_a_store_condition_that_must_be_fixed_ends_the_start(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic = tmp_topic("configs")
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "delete"})])
    await asyncio.wrap_future(made[topic])
    env = {
        "HERDMESH_GROUP_ID": topic,
        "HERDMESH_CONFIG_STORAGE_TOPIC": topic,
        "HERDMESH_STATUS_STORAGE_TOPIC": tmp_topic("status"),
        "HERDMESH_OFFSET_STORAGE_TOPIC": tmp_topic("offsets"),
    }
    stack = Stack(StackSettings(tmp_path, workers=0, usual_ports=False, service_env=env, broker=kafka))
    begun_s = time.monotonic()
    with pytest.raises(ServiceNotReady, match=r"config-store: CLEANUP_POLICY_WRONG: .*kafka-configs\.sh") as refused:
        await stack.start()
    assert time.monotonic() - begun_s < 45  # half of the time that it would wait for a slow start
    assert "\n" not in str(refused.value)
    assert all(process.mark is None for process in stack.processes.values())


def test_the_size_of_the_brokers_jars_is_as_told() -> None:
    assert round(sum(Path(jar).stat().st_size for jar in ensure_jars("broker").split(os.pathsep)) / 1e6) == BROKER_MB


async def test_a_broker_that_is_not_ready_in_time_is_named(tmp_path: Path) -> None:
    """It is no process of the stack's list: the message about its log failed with a KeyError."""
    with pytest.raises(ServiceNotReady, match=r"not serving after 0\.05 s: broker"):
        await Stack(StackSettings(tmp_path, usual_ports=False)).start(0.05)


async def test_a_service_of_another_stack_at_its_port_does_not_count_as_serving(
    kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stacks that started in the same second chose the same port: the second took the first one's worker for its
    own.
    """
    group = tmp_topic("group")
    env = {"HERDMESH_GROUP_ID": group, "HERDMESH_CONFIG_STORAGE_TOPIC": tmp_topic("configs")}
    stack = Stack(StackSettings(tmp_path, workers=0, usual_ports=False, service_env=env, broker=kafka))
    start_service = stack._start_service  # pyright: ignore[reportPrivateUsage]
    others: list[Server] = []

    async def after_another_took_the_port(name: str, port: int) -> None:
        if name == "config-store":
            other = Server(f"127.0.0.1:{port}", [_NO_SERVICE], metrics=False)
            await other.start()
            await other.set_all_serving(True)
            others.append(other)
        await start_service(name, port)

    monkeypatch.setattr(stack, "_start_service", after_another_took_the_port)
    try:
        with pytest.raises(
            ServiceNotReady, match=rf"config-store cannot listen on port \d+: process {os.getpid()} does"
        ):
            await stack.start()
    finally:
        for other in others:
            await other.stop(0.0)


async def test_kill_ends_all_processes_at_once(kafka: Broker, tmp_path: Path, tmp_topic: Callable[..., str]) -> None:
    """The second Ctrl-C of `herd up`. A broker that is not the stack's own stays."""
    settings = StackSettings(
        tmp_path, workers=0, usual_ports=False, kafka=ExistingKafka.of(kafka.bootstrap, None), group_id=tmp_topic()
    )
    stack = Stack(settings)
    await stack.start()
    assert stack.state.ready
    assert [one.state for one in stack.state.services] == ["serving"] * 4
    assert any("1 broker, so topics" in one for one in stack.state.notices)
    marks = [one.mark for one in stack.state.services if one.mark is not None]
    assert len(marks) == 3
    await stack.kill()
    assert all(mark.alive() is None for mark in marks)
    assert [one.state for one in stack.state.services] == ["serving", *["stopped"] * 3]  # the cluster goes on
    assert kafka.is_running()
    topics = set(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics)
    assert {f"{settings.group_id}-configs", f"{settings.group_id}-status"} <= topics
