"""Header names of a dead letter, as in Connect: `__connect.errors.*` (docs/reference/connect/data-model.md, section
5.4).

Owns the prefix, for the engine that writes dead letters and for the worker and the CLI that read them.
"""

from __future__ import annotations

from typing import Final

ERROR_HEADER_PREFIX: Final = "__connect.errors."
