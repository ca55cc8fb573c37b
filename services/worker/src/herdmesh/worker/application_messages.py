"""Messages between a worker and the Spark application of one connector: one line of JSON each.

Owns the messages. The two ends are `effects.runs.applications` and `spark.application`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from herdmesh.worker.run import Launch

#: A line can hold the stacks of all threads of a crashed process.
LINE_BYTES_MAX: Final = 16 << 20


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The first line: start Spark with these settings. The reply is `Begun`."""

    conf: dict[str, str]


class Execute(msgspec.Struct, frozen=True, tag=True):
    """Launch a process. The reply is one `Ended` with its id."""

    launch: Launch


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Kill a process; its `Ended` follows."""

    process_id: str


class Begun(msgspec.Struct, frozen=True, tag=True):
    """Result of starting Spark. `error`: why it failed, after which the application ends."""

    jvm_pid: int = 0
    error: str = ""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The end of a process. `error`: why it failed, None = it ended normally; the other fields as in `RunLost`."""

    process_id: str
    error: str | None = None
    own_doing: bool = False
    trace: str = ""


TO_APPLICATION: Final = msgspec.json.Decoder(Begin | Execute | Cancel)
FROM_APPLICATION: Final = msgspec.json.Decoder(Begun | Ended)


def line_of(message: msgspec.Struct) -> bytes:
    """The message as the line that is sent."""
    return msgspec.json.encode(message) + b"\n"
