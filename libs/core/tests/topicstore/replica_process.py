"""A replica in a process of its own, for tests that stop, continue or kill one.

Reads a JSON object per line from stdin (`{"id", "write": "create"|"put_once"|"beside", "key", "value"}`), executes all
writes at once, and answers each with a line on stdout. `beside` also writes a record of that key and value to the
topic, and commits offset 7 of its partition 0 for the group, that `"other"` names. Prints `{"role": ...}` at each
change of role. Ends when stdin closes.

    python -m libs.core.tests.topicstore.replica_process BOOTSTRAP TOPIC SESSION_TIMEOUT_MS
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

from herdmesh.topicstore import Beside, GroupOffset, NewRecord
from tests.contract.topicstore_harness import (
    Decide,
    KafkaCluster,
    Store,
    create,
    put_beside,
    put_once,
    suite_settings,
)


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def decide(command: dict[str, str]) -> Decide:
    key, value = command["key"].encode(), command["value"].encode()
    if command["write"] == "beside":
        other = command["other"]
        return put_beside(key, value, Beside([NewRecord(key, value, other)], other, [GroupOffset(other, 0, 7)]))
    return {"create": create, "put_once": put_once}[command["write"]](key, value)


async def write(store: Store, command: dict[str, str]) -> None:
    try:
        written = await store.write(decide(command))
    except Exception as error:  # noqa: BLE001  # the test looks at it
        say(id=command["id"], error=type(error).__name__, text=str(error))
    else:
        say(id=command["id"], offset=written.entry.offset if written.entry else None)


async def tell_roles(store: Store) -> None:
    async for role in store.role_changes():
        say(role=role.value)


async def main(bootstrap: str, topic: str, session_timeout_ms: int) -> None:
    cluster = KafkaCluster(replace(suite_settings(topic, bootstrap), session_timeout_ms=session_timeout_ms))
    store = await cluster.open()
    tasks = [asyncio.create_task(tell_roles(store))]
    while line := await asyncio.to_thread(sys.stdin.readline):
        tasks += [asyncio.create_task(write(store, command)) for command in json.loads(line)]
    await cluster.close()
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
