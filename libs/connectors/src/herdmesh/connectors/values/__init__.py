"""Conversion of values to JSON, lines, CSV cells and Arrow columns, for all sinks.

Owns one conversion each: JSON (`payloads`), lines of text (`lines`), CSV cells (`cells`),
and columns with types inferred from the data (`columns`); the last two need pyarrow and are
not re-exported. Columns with a schema: `herdmesh.sdk.arrow`. `refusals` finds the one
record of a batch that cannot be converted. docs/reference/values.md lists each type's form.

Invariant: a value is never changed: it is written exactly, or its record is refused.
"""

from __future__ import annotations

from herdmesh.connectors.values.lines import lines_of
from herdmesh.connectors.values.payloads import Payloads, payloads
from herdmesh.connectors.values.refusals import chosen_of, convert_batch, part_of

__all__ = ["Payloads", "chosen_of", "convert_batch", "lines_of", "part_of", "payloads"]
