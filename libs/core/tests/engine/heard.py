"""A reporter of failures that remembers them. Invariant: what it was told, in order, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from herdmesh.engine.bad_records.tolerance import Failure


@dataclass
class Heard:
    """What one reporter was told."""

    failures: list[Failure] = field(default_factory=lambda: list[Failure]())

    def report(self, failure: Failure) -> None:
        self.failures.append(failure)
