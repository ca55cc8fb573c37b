"""Our side, one process per question: `python -m bench.stores.ours QUESTION OPTIONS-AS-JSON` prints one JSON object.

Owns callers, watchers and replays as processes of their own, as in production: a caller in the store's process would
share its one core too. Invariant: only the call is timed, never the start of a process.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import psutil

from bench.stores.workload import connector_config
from herdmesh.api.common.v1 import connector_pb2, identity_pb2
from herdmesh.api.configstore.v1 import config_read_service_pb2 as config_read
from herdmesh.api.configstore.v1 import config_read_service_pb2_grpc as config_read_grpc
from herdmesh.api.configstore.v1 import config_write_service_pb2 as config_write
from herdmesh.api.configstore.v1 import config_write_service_pb2_grpc as config_write_grpc
from herdmesh.api.statusstore.v1 import status_pb2
from herdmesh.api.statusstore.v1 import status_write_service_pb2 as status_write
from herdmesh.api.statusstore.v1 import status_write_service_pb2_grpc as status_write_grpc
from herdmesh.configstore.effects.stores import fresh_id, open_store, wall_clock_ms
from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.configstore.state import mutations, writes
from herdmesh.configstore.state.config import ConfigState
from herdmesh.rpc import properties
from herdmesh.rpc.client import connect
from herdmesh.statusstore.effects.store import make_store
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.topicstore import StoreRole, WriteDecision

Options = dict[str, Any]
Call = Callable[[str], Awaitable[object]]


async def replay_config(options: Options) -> Options:
    """Time of `start()`, which ends when the store has read to the end of its topic."""
    store = open_store(_config_settings(options))
    begun = time.perf_counter()
    await store.start()
    took_ms = (time.perf_counter() - begun) * 1000
    answer = {"replay_ms": took_ms, "cpu_ms": time.process_time() * 1000, "connectors": len(store.state.connectors)}
    await store.close()
    return answer


async def replay_status(options: Options) -> Options:
    """The same for the status topic."""
    store = make_store(_status_settings(options))
    begun = time.perf_counter()
    await store.start()
    took_ms = (time.perf_counter() - begun) * 1000
    answer = {"replay_ms": took_ms, "connectors": len(store.state.connectors)}
    await store.close()
    return answer


async def direct_writes(options: Options) -> Options:
    """Callers on the `TopicStore` itself, in its process and on its event loop."""
    settings = _config_settings(options)
    store = open_store(settings)
    await store.start()
    async for role in store.role_changes():
        if role is StoreRole.WRITER:
            break

    async def call(name: str) -> object:
        mutation = mutations.PutConnectorConfig(name, connector_config(name))
        context = mutations.WriteContext(
            "PutConnectorConfig", wall_clock_ms(), fresh_id(), store.revision.store_id, settings.audit_topic
        )

        def decide(state: ConfigState) -> WriteDecision[object]:
            return WriteDecision(writes.plan(state, mutation, context).records, lambda after, _: after.connector(name))

        return await store.write(decide)

    answer = await _timed(call, options)
    await store.close()
    return answer


async def grpc_writes(options: Options) -> Options:
    """Callers over gRPC, on four connections."""
    channels = [connect(options["address"]) for _ in range(min(4, options["callers"]))]
    stubs = [config_write_grpc.ConfigWriteServiceStub(channel) for channel in channels]

    async def call(name: str) -> object:
        request = config_write.PutConnectorConfigRequest(
            connector=name, config=properties.to_proto(connector_config(name))
        )
        return await stubs[hash(name) % len(stubs)].PutConnectorConfig(request)

    answer = await _timed(call, options)
    for channel in channels:
        await channel.close()
    return answer


async def watch(options: Options) -> Options:
    """`watchers` streams on ten connections. Prints `ready` when all have their snapshot, reads until its standard
    input ends, and then waits until every stream has reached the revision that it got there.
    """
    channels = [connect(options["address"]) for _ in range(10)]
    count = options["watchers"]
    seen = [0] * count
    last = [0] * count
    problems: list[str] = []
    changed = asyncio.Event()
    ready = 0

    async def one(number: int) -> None:
        nonlocal ready
        stub = config_read_grpc.ConfigReadServiceStub(channels[number % len(channels)])
        request = config_read.WatchRequest(connectors=options["filter"])
        try:
            async for event in stub.Watch(request):
                if event.HasField("snapshot_complete"):
                    ready += 1
                elif event.HasField("connector_changed") and ready:
                    seen[number] += 1
                if event.HasField("meta"):
                    if event.meta.revision.next_offsets[0] < last[number]:
                        problems.append(f"{number} went back")
                    last[number] = event.meta.revision.next_offsets[0]
                changed.set()
        except Exception as error:  # noqa: BLE001  # counted: a watcher that was cut off is a figure
            problems.append(f"{number}: {error}")
            changed.set()

    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    while ready < count and not problems:
        changed.clear()
        await changed.wait()
    print("ready", flush=True)
    until = int(await asyncio.to_thread(sys.stdin.readline))
    begun = time.perf_counter()
    while min(last) < until and not problems:
        changed.clear()
        await changed.wait()
    caught_up_ms = (time.perf_counter() - begun) * 1000
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"caught_up_ms": caught_up_ms, "changes": sum(seen), "least": min(seen), "problems": problems[:5]}


async def statuses(options: Options) -> Options:
    """`tasks` statuses in one batch call, answered when stored and read back; then one call for each."""
    channel = connect(options["address"])
    stub = status_write_grpc.StatusWriteServiceStub(channel)
    writer = identity_pb2.WorkerIdentity(worker_id="127.0.0.1:8083", incarnation="bench")

    def put(task: int, generation: int) -> status_write.StatusPut:
        return status_write.StatusPut(
            mode=status_write.PUT_MODE_PUT,
            status=status_pb2.Status(
                connector=f"bench-{task // 10}",
                task=task % 10,
                state=connector_pb2.RUN_STATE_RUNNING,
                generation=generation,
                version="4.3.1",
            ),
        )

    async def write(tasks: Sequence[int], generation: int) -> None:
        request = status_write.PutStatusesRequest(writer=writer, puts=[put(task, generation) for task in tasks])
        answer = await stub.PutStatuses(request)
        assert len(answer.outcomes) == len(tasks)
        assert all(outcome.result == status_write.PUT_RESULT_APPLIED for outcome in answer.outcomes)

    batch_ms: list[float] = []
    for round_number in range(options["rounds"]):
        begun = time.perf_counter()
        await write(range(options["tasks"]), round_number + 1)
        batch_ms.append((time.perf_counter() - begun) * 1000)
    each_ms: list[float] = []
    for round_number in range(options["rounds"]):
        begun = time.perf_counter()
        for task in range(options["singles"]):
            await write([task], options["rounds"] + round_number + 1)
        each_ms.append((time.perf_counter() - begun) * 1000)
    await channel.close()
    return {"batch_ms": batch_ms, "one_by_one_ms": each_ms}


async def _timed(call: Call, options: Options) -> Options:
    """`callers` at once, each of which sends `each` calls one after the other, with `pause_ms` between two."""
    for number in range(options["warm_up"]):
        await call(f"warm-up-{number}")
    latencies_us: list[int] = []

    async def caller(number: int) -> None:
        for turn in range(options["each"]):
            begun = time.perf_counter()
            await call(f"ours-{number}-{turn}")
            latencies_us.append(round((time.perf_counter() - begun) * 1e6))
            if options.get("pause_ms"):
                await asyncio.sleep(options["pause_ms"] / 1000)

    begun = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(options["callers"])))
    return {"total_ms": (time.perf_counter() - begun) * 1000, "latencies_us": latencies_us}


def _config_settings(options: Options) -> ConfigStoreSettings:
    return ConfigStoreSettings(
        bootstrap_servers=options["bootstrap"],
        group_id=options["topic"],
        config_storage_topic=options["topic"],
        config_storage_replication_factor=1,
        metrics=False,
    )


def _status_settings(options: Options) -> StatusStoreSettings:
    return StatusStoreSettings(
        bootstrap_servers=options["bootstrap"],
        group_id=options["topic"],
        status_storage_topic=options["topic"],
        status_storage_replication_factor=1,
        metrics=False,
    )


QUESTIONS: dict[str, Callable[[Options], Coroutine[Any, Any, Options]]] = {
    "replay-config": replay_config,
    "replay-status": replay_status,
    "direct-writes": direct_writes,
    "grpc-writes": grpc_writes,
    "watch": watch,
    "statuses": statuses,
}


def main() -> None:
    """Run one question."""
    question, options = sys.argv[1], json.loads(sys.argv[2])
    answer = asyncio.run(QUESTIONS[question](options))
    answer["rss_mb"] = psutil.Process().memory_info().rss / 1e6
    answer["rss_max_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
