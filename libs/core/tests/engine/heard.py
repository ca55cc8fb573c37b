"""A failure reporter that records its calls. Invariant: exactly the reported failures, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from herdmesh.engine.bad_records.tolerance import Failure


@dataclass
class Heard:
    """The failures of one reporter."""

    failures: list[Failure] = field(default_factory=lambda: list[Failure]())

    def report(self, failure: Failure) -> None:
        self.failures.append(failure)
