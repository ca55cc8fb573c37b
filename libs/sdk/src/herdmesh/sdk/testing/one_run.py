"""One run in a process of its own, which a failpoint may kill: `python -m herdmesh.sdk.testing.one_run SPEC`.

Owns the command. The spec is a pickled `RunSpec`. Invariant: it exits with 0 only when the run ended without an error.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from herdmesh.engine import Command, ProgressReport, run


class SilentLink:
    """A link to a worker that sends no commands and stores no offsets."""

    def progress(self, progress: ProgressReport) -> None:
        """Ignore the progress."""

    def commands(self) -> Sequence[Command]:
        """No commands."""
        return ()

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Ignored: commands are read at each turn of the loop."""

    def store_offsets(self, offsets: Mapping[bytes, bytes | None]) -> None:
        """Do nothing: the offsets are in Kafka."""


if __name__ == "__main__":
    run(pickle.loads(Path(sys.argv[1]).read_bytes()), SilentLink())
