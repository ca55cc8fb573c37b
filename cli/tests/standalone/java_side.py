"""Java's own reading and writing of standalone mode's files, compiled once a session. Owns the calls, and no test."""

from __future__ import annotations

import subprocess
from pathlib import Path

from herdmesh.devstack.jars import ensure_jars
from herdmesh.devstack.java import find_java

_SOURCE = Path(__file__).with_name("StandaloneSide.java")
_TIMEOUT_S = 100


class JavaSide:
    """`folder` takes the compiled class. Needs a JDK, as the tests beside Java do."""

    def __init__(self, folder: Path) -> None:
        self._class_path = f"{folder}:{ensure_jars('connect')}"
        self._java = find_java().executable
        javac = self._java.resolve().with_name("javac")
        subprocess.run([str(javac), "-cp", self._class_path, "-d", str(folder), str(_SOURCE)], check=True)
        self._log = folder / "log4j2.properties"
        self._log.write_text("rootLogger.level = OFF\n")

    def properties(self, files: list[bytes]) -> list[dict[bytes, bytes] | None]:
        """What `java.util.Properties.load` makes of each file, in UTF-16; None = it refuses."""
        answers = self._ask("\n".join(one.hex() for one in files) + "\n", "properties")
        found: list[dict[bytes, bytes] | None] = []
        for line in answers:
            if line == "refused":
                found.append(None)
                continue
            pairs = [pair.partition("=") for pair in line.split()]
            found.append({bytes.fromhex(key): bytes.fromhex(value) for key, _, value in pairs})
        return found

    def store(self, path: Path, offsets: dict[bytes, bytes | None]) -> None:
        """Store offsets with Connect's FileOffsetBackingStore, on top of what the file has."""
        pairs = [f"{key.hex()} {'-' if value is None else value.hex()}" for key, value in offsets.items()]
        self._ask("\n".join(pairs), "set", str(path))

    def stored(self, path: Path, keys: list[bytes], connector: str) -> tuple[list[bytes | None], int]:
        """What Connect's FileOffsetBackingStore reads: the value of each key, and the connector's partitions."""
        *values, partitions = self._ask("\n".join(key.hex() for key in keys), "get", str(path), connector)
        found = [None if value == "-" else bytes.fromhex(value) for value in values]
        return found, int(partitions.removeprefix("{partitions=").removesuffix("}"))

    def _ask(self, given: str, *arguments: str) -> list[str]:
        command = [
            *(str(self._java), "-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={self._log}"),
            *("-cp", self._class_path, "StandaloneSide", *arguments),
        ]
        done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
        return done.stdout.splitlines()
