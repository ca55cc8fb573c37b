"""The converters that options of `herd produce` and `herd consume` name. Owns nothing else.

Invariant: imports neither Kafka's client nor converters, so that `herd` need not load them to list its commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herdmesh.cli.errors import EXIT_USAGE, CommandError


@dataclass(frozen=True, slots=True)
class ConverterOptions:
    """The options of a command that choose converters."""

    key: str | None = None
    value: str | None = None
    header: str | None = None
    settings: Sequence[str] = ()
    """`value.converter.schemas.enable=false`."""
    worker: str | None = None
    """A file of worker properties."""
    connector: str | None = None

    @property
    def any_named(self) -> bool:
        """True when records are converted at all; without a converter they are bytes."""
        return bool(self.key or self.value or self.header or self.connector)

    def check(self) -> None:
        """Raise CommandError for settings of converters without a converter."""
        if (self.settings or self.worker) and not self.any_named:
            text = "--converter-config and --worker-config are for converters, and none is named"
            raise CommandError("USAGE", text, "Add --value-converter CLASS or --as-connector NAME.", EXIT_USAGE)
