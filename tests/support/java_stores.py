"""Connect's own `KafkaConfigBackingStore` and `KafkaStatusBackingStore` in a JVM, driven operation by operation.

Owns the process of `StoresSide.java` and its one line out for each line in. Owns no comparison.
Invariant: an operation has been acknowledged by the broker when `play` returns.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java

Json = dict[str, Any]
_SOURCE = Path(__file__).with_name("StoresSide.java")
_ANSWER_S = 60.0


class JavaStores:
    """The two stores on two topics, which are created where they are missing; the status topic has one partition."""

    def __init__(self, bootstrap: str, config_topic: str, status_topic: str, folder: Path) -> None:
        self._arguments = (bootstrap, config_topic, status_topic)
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Compile, start, and wait until both stores have read their topics."""
        java, jars = find_java().executable, ensure_jars("connect")
        javac = java.resolve().with_name("javac")
        await asyncio.to_thread(
            subprocess.run, [str(javac), "-cp", jars, "-d", str(self._folder), str(_SOURCE)], check=True
        )
        log = self._folder / "log4j2.properties"
        log.write_text("rootLogger.level = OFF\n")
        self._process = await asyncio.create_subprocess_exec(
            *(str(java), "-Xmx256M", f"-Dlog4j2.configurationFile={log}", "-cp", f"{self._folder}:{jars}"),
            *("StoresSide", *self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 24,
        )
        await self._answer()

    async def play(self, operation: Json) -> Json:
        """Play one operation; the answer is empty except for `show`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(operation).encode() + b"\n")
        await self._process.stdin.drain()
        return await self._answer()

    async def show(self, names: Sequence[str]) -> dict[str, Json]:
        """Contents of both stores at the ends of their topics."""
        return await self.play({"do": "show", "names": names})

    async def stop(self) -> None:
        """End the process. Safe to call again."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _answer(self) -> Json:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(_ANSWER_S):
            line = await self._process.stdout.readline()
        assert line, "the JVM ended; its error is above"
        return cast(Json, json.loads(line))
