"""The offset range of each batch that a chain returns.

Owns this rule. `record_columns` reads messages; the chain converts them.

Invariant: each record read is in exactly one of the ranges, if there is any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from herdmesh.connect.model import Batch


def ranges(made: Sequence[Batch], first: int, last: int) -> Iterator[tuple[Batch, int, int]]:
    """Yield each batch that the chain made of records `first` to `last` with its offset range. Skipped records belong
    to the range of the batch before them.
    """
    begins = [first, *(batch.offsets[0] for batch in made[1:])]
    ends = [*(begin - 1 for begin in begins[1:]), last]
    yield from zip(made, begins, ends, strict=True) if made else ()
