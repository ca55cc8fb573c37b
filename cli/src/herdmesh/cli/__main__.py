"""The `herd` script.

Owns the choice of the application to import: `herd transform` works on files, starts in a fraction of the time, and
needs no import of the other commands (gRPC, Kafka's client). The commands are in `app`.
"""

from __future__ import annotations

import sys

from herdmesh.rpc import gc_at_import


def main() -> None:
    """Entry point of the `herd` script."""
    gc_at_import.begin()
    if sys.argv[1:2] == ["transform"]:
        from herdmesh.cli.commands.transform import alone as app
    else:
        from herdmesh.cli.app import app
    gc_at_import.over()
    app()


if __name__ == "__main__":
    main()
