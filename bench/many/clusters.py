"""The two clusters as a user with many connectors in files uses them.

Owns the calls: `herd apply -f` and `herd delete -f` as processes of their own on our side; on Java's side, which has no
call for several connectors, as many parallel REST calls as a careful script makes. Owns which process is of which kind.
`bench.sides` owns start, stop and what RUNNING means.

Invariant: a call's time counts from its begin to its end as its user sees both; our side's includes the
start of `herd`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
import yaml

from bench.sides import JavaSide, OurSide, Side
from bench.usage import cpu_s, memory_mb
from herdmesh.devstack.broker import Broker

Configs = Mapping[str, dict[str, str]]
"""Configs by the connectors' names."""
_CALLERS = 8
_POLL_S = 0.2
"""Pause between two looks at Java's states: without one, what asks would use a core of the two."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time by kind of process so far."""

    cpu_s: Mapping[str, float]

    def since(self, before: Usage) -> dict[str, float]:
        """The processor time by kind since an earlier usage."""
        return {kind: used_s - before.cpu_s.get(kind, 0.0) for kind, used_s in self.cpu_s.items()}


class Many(Protocol):
    """One of the two clusters."""

    @property
    def side(self) -> Side: ...

    async def apply(self, configs: Configs) -> None:
        """Create or update all; returns when all are acknowledged."""
        ...

    async def delete(self, configs: Configs) -> None: ...

    def generations(self) -> dict[str, int]:
        """The generation of each connector's task, by which a restart is seen; empty where there are none."""
        ...

    async def until_running(self, names: Sequence[str], above: Mapping[str, int]) -> None:
        """Wait until all run; with generations in `above`, under higher ones."""
        ...

    async def until_gone(self, names: Sequence[str]) -> None: ...

    def usage(self) -> Usage:
        """What its processes, the broker and the calls have used so far."""
        ...

    def memory_mb(self) -> dict[str, float]:
        """Memory by kind of process."""
        ...


class OurMany:
    """Our side: half of the connectors in one file, each of the others in a file of a folder, JSON and YAML in turn."""

    def __init__(self, side: OurSide, broker: Broker) -> None:
        self.side = side
        self._broker = broker
        self._calls_s = 0.0

    async def apply(self, configs: Configs) -> None:
        with _files(configs) as files:
            await self._herd("apply", *files)

    async def delete(self, configs: Configs) -> None:
        with _files(configs) as files:
            await self._herd("delete", "--yes", *files)

    def generations(self) -> dict[str, int]:
        return self.side.task_generations()

    async def until_running(self, names: Sequence[str], above: Mapping[str, int]) -> None:
        await self.side.until_running(names, above=above)

    async def until_gone(self, names: Sequence[str]) -> None:
        for name in names:
            await self.side.until_gone(name)

    def usage(self) -> Usage:
        used = {kind: cpu_s(found) for kind, found in self._kinds().items()}
        return Usage({**used, "herd": self._calls_s})

    def memory_mb(self) -> dict[str, float]:
        return {kind: memory_mb(found) for kind, found in self._kinds().items()}

    def _kinds(self) -> dict[str, list[psutil.Process]]:
        found: dict[str, list[psutil.Process]] = {"broker": _broker(self._broker)}
        for name, process in self.side.processes():
            kind = name.rstrip("-0123456789")
            found.setdefault(kind, []).append(process)
            for child in process.children(recursive=True):
                try:
                    below = "worker's JVM" if child.name() == "java" else "worker's runs"
                except psutil.NoSuchProcess:
                    continue
                found.setdefault(below, []).append(child)
        return found

    async def _herd(self, *arguments: str) -> None:
        before_s = _children_s()
        command = [sys.executable, "-m", "herdmesh.cli", *arguments, "--herder", self.side.address]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        self._calls_s += _children_s() - before_s
        if process.returncode:
            raise RuntimeError(f"herd {arguments[0]} ended with {process.returncode}: {said.decode()[-2_000:]}")


class JavaMany:
    """Java's side: a REST call for each connector, so many at once."""

    def __init__(self, side: JavaSide, broker: Broker) -> None:
        self.side = side
        self._broker = broker

    async def apply(self, configs: Configs) -> None:
        waiting = iter(configs.items())

        async def caller() -> None:
            for name, config in waiting:
                await self.side.put(name, config)

        await asyncio.gather(*(caller() for _ in range(_CALLERS)))

    async def delete(self, configs: Configs) -> None:
        waiting = iter(configs)

        async def caller() -> None:
            for name in waiting:
                await self.side.delete(name)

        await asyncio.gather(*(caller() for _ in range(_CALLERS)))

    def generations(self) -> dict[str, int]:
        return {}

    async def until_running(self, names: Sequence[str], above: Mapping[str, int]) -> None:
        await self.side.until_running(names, pause_s=_POLL_S)

    async def until_gone(self, names: Sequence[str]) -> None:
        await self.side.until_all_gone(_POLL_S)

    def usage(self) -> Usage:
        return Usage({kind: cpu_s(found) for kind, found in self._kinds().items()})

    def memory_mb(self) -> dict[str, float]:
        return {kind: memory_mb(found) for kind, found in self._kinds().items()}

    def _kinds(self) -> dict[str, list[psutil.Process]]:
        return {"broker": _broker(self._broker), "worker": self.side.everything()}


@contextlib.contextmanager
def _files(configs: Configs) -> Generator[list[str]]:
    """The arguments that name the files of these connectors; the files are deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="herdmesh-many-files-") as name:
        listed, single = Path(name) / "connectors.json", Path(name) / "single"
        single.mkdir()
        documents = [{"name": name, "config": config} for name, config in configs.items()]
        half = (len(documents) + 1) // 2
        listed.write_text(json.dumps(documents[:half], indent=2))
        for number, document in enumerate(documents[half:]):
            if number % 2:
                (single / f"{document['name']}.yaml").write_text(yaml.safe_dump(document))
            else:
                (single / f"{document['name']}.json").write_text(json.dumps(document, indent=2))
        yield ["-f", str(listed), *(["-f", str(single)] if documents[half:] else [])]


def _broker(broker: Broker) -> list[psutil.Process]:
    return [psutil.Process(broker.pid)] if broker.pid is not None else []


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
