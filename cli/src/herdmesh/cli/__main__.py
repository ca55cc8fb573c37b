"""The `herd` script.

Owns the choice of the application to import: `herd transform` works on files, starts in a fraction of the time, and
needs no import of the other commands (gRPC, Kafka's client), unless it has an option of the whole program or names a
connector of a mesh. The commands are in `app`.
"""

from __future__ import annotations

import sys
from typing import Final

from herdmesh.rpc import gc_at_import

#: Options that only the whole application has; a context matters where a connector is named.
_OF_ALL: Final = frozenset(
    {"--no-headers", "--context", "--trace", "--timeout", "--version", "--as-connector", "--herder"}
)


def main() -> None:
    """Entry point of the `herd` script."""
    try:
        gc_at_import.begin()
        if sys.argv[1:2] == ["transform"] and not any(one.partition("=")[0] in _OF_ALL for one in sys.argv):
            from herdmesh.cli.commands.transform import alone as app
        else:
            from herdmesh.cli.app import app
        gc_at_import.over()
    except KeyboardInterrupt:  # nothing was begun
        sys.exit(130)
    app()


if __name__ == "__main__":
    main()
