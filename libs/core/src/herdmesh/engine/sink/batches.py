"""Offset ranges that the batches of a chain stand for.

Owns this rule. What is read from a message is `record_columns`'s; converting is the chain's.

Invariant: each record read is in exactly one of the ranges, if there is any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from herdmesh.connect.model import Batch


def ranges(made: Sequence[Batch], first: int, last: int) -> Iterator[tuple[Batch, int, int]]:
    """What a chain made of records `first` to `last`, each batch with the offsets it stands for, those of records that
    were left out with the batch before them."""
    begins = [first, *(batch.offsets[0] for batch in made[1:])]
    ends = [*(begin - 1 for begin in begins[1:]), last]
    yield from zip(made, begins, ends, strict=True) if made else ()
