"""What is done before anything of a service is imported: each service's package imports this first.

Owns two things that a service's process does without. Garbage is not looked for among what is imported (`imports`). And
structlog takes `rich` where it is installed (the command line's need), for tracebacks on a terminal, and ours are lines
of JSON. Invariant: it is hidden only while structlog is imported, so `herd run`, which is the command line and the
services in one process, has its tables, and a connector may use it.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from herdmesh.rpc import imports

imports.begin()

# A tenth of a service's start in processor time.
if "rich" not in sys.modules and "structlog" not in sys.modules:
    modules: dict[str, Any] = sys.modules  # None: importing it fails as if it were not installed
    modules["rich"] = None
    try:
        importlib.import_module("structlog")
    finally:
        del modules["rich"]
