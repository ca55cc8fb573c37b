"""Messages between a worker and a Spark application of a connector's own: JSON, a line each.

Owns the messages. The two ends are `effects.runs.applications` and `spark.application`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from herdmesh.worker.run import Launch

#: A line has the stacks of all threads of a process that crashed.
LINE_BYTES_MAX: Final = 16 << 20


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The first line: start Spark with these settings. Answered by `Begun`."""

    conf: dict[str, str]


class Execute(msgspec.Struct, frozen=True, tag=True):
    """Launch a process. Answered by one `Ended` with its id."""

    launch: Launch


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Kill a process; its `Ended` then comes."""

    process_id: str


class Begun(msgspec.Struct, frozen=True, tag=True):
    """Spark is there, or not. `error`: why not, and the application ends."""

    jvm_pid: int = 0
    error: str = ""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A process is over. `error`: what was wrong with its end, None = nothing; the rest as in `RunLost`."""

    process_id: str
    error: str | None = None
    own_doing: bool = False
    trace: str = ""


TO_APPLICATION: Final = msgspec.json.Decoder(Begin | Execute | Cancel)
FROM_APPLICATION: Final = msgspec.json.Decoder(Begun | Ended)


def line_of(message: msgspec.Struct) -> bytes:
    """As it is sent."""
    return msgspec.json.encode(message) + b"\n"
