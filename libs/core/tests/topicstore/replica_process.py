"""A replica in a process of its own, for tests that stop and continue one.

Reads a JSON object per line from stdin (`{"id", "write": "create"|"put_once", "key", "value"}`), writes all it is told
at once, and answers each with a line on stdout. Prints `{"role": ...}` at each change of role. Ends with its stdin.

    python -m libs.core.tests.topicstore.replica_process BOOTSTRAP TOPIC SESSION_TIMEOUT_MS
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

from tests.contract.topicstore_harness import KafkaCluster, Store, create, put_once, suite_settings


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def write(store: Store, command: dict[str, str]) -> None:
    decide = {"create": create, "put_once": put_once}[command["write"]]
    try:
        written = await store.write(decide(command["key"].encode(), command["value"].encode()))
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
