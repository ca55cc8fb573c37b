"""Java's own reading and writing of standalone mode's files, by one JVM that compiles its program as it starts.

Owns that JVM and the calls, and no test."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from herdmesh.devstack import class_archive
from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java

_SOURCE = Path(__file__).with_name("StandaloneSide.java")
_TIMEOUT_S = 100


class JavaSide:
    """The JVM. `folder` takes its log settings. Needs a JDK, as the other tests with Java do. A request that Java
    cannot answer, or not within 100 s, ends the JVM: its call raises RuntimeError.
    """

    def __init__(self, folder: Path) -> None:
        java, class_path = find_java(), ensure_jars("connect")
        log = folder / "log4j2.properties"
        log.write_text("rootLogger.level = OFF\n")
        command = [
            *(str(java.executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *class_archive.use_options(class_archive.archive_path(java, class_path)),
            *(f"-Dlog4j2.configurationFile={log}", "-cp", class_path, str(_SOURCE)),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        killing = threading.Timer(_TIMEOUT_S, self._process.kill)
        killing.start()
        with self._process:
            pass  # leaving closes the JVM's input, which ends it, and waits for it
        killing.cancel()

    def properties(self, files: list[bytes]) -> list[dict[bytes, bytes] | None]:
        """The properties that `java.util.Properties.load` reads from each file, in UTF-16; None = Java refuses the
        file.
        """
        found: list[dict[bytes, bytes] | None] = []
        for line in self._ask([one.hex() for one in files], "properties"):
            if line == "refused":
                found.append(None)
                continue
            pairs = [pair.partition("=") for pair in line.split()]
            found.append({bytes.fromhex(key): bytes.fromhex(value) for key, _, value in pairs})
        return found

    def store(self, path: Path, offsets: dict[bytes, bytes | None]) -> None:
        """Store offsets with Connect's FileOffsetBackingStore, on top of those in the file."""
        pairs = [f"{key.hex()} {'-' if value is None else value.hex()}" for key, value in offsets.items()]
        self._ask(pairs, "set", str(path))

    def stored(self, path: Path, keys: list[bytes], connector: str) -> tuple[list[bytes | None], int]:
        """The offsets that Connect's FileOffsetBackingStore reads: the value of each key, and the connector's
        partitions.
        """
        *values, partitions = self._ask([key.hex() for key in keys], "get", str(path), connector)
        found = [None if value == "-" else bytes.fromhex(value) for value in values]
        return found, int(partitions.removeprefix("{partitions=").removesuffix("}"))

    def _ask(self, given: list[str], question: str, *arguments: str) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [question, str(len(given)), *(one.encode().hex() for one in arguments)]
        killing = threading.Timer(_TIMEOUT_S, self._process.kill)
        killing.start()
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in (" ".join(words), *given)))
            self._process.stdin.flush()
            answer: list[str] = []
            while (line := self._process.stdout.readline()) != ".\n":
                if not line:
                    raise RuntimeError(f"Java ended, of {question}: exit code {self._process.wait()}")
                answer.append(line.removesuffix("\n"))
            return answer
        finally:
            killing.cancel()
