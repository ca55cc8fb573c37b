"""Builds of the store with one safety switched off, for the tests that show that the checkers catch each.

Owns the four switches. They are patches of a test, never flags of the product: each replaces one method by a
plausible mistake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from herdmesh.configstore.service.write import ConfigWriteServicer
from herdmesh.topicstore.applied import Applied
from herdmesh.topicstore.barrier import Barrier
from herdmesh.topicstore.contract import Revision
from herdmesh.topicstore.errors import WriteOutcomeUnknown, WriterFenced
from herdmesh.topicstore.log import CommitNotSent, CommitOutcomeUnknown, LogPlace, Transaction
from herdmesh.topicstore.writes import GroupCommit


@contextmanager
def _no_fence() -> Generator[bool]:
    """Replicas do not share the transactional id: no commit is refused because of a take-over."""
    yield False


@contextmanager
def _no_read_back() -> Generator[bool]:
    """A write is answered when the commit call returns, before this replica's reader has its records."""

    async def fly(self: GroupCommit[Any], group: Sequence[Any]) -> None:
        writes = [pending.decision.records for pending in group]
        places: list[LogPlace] = []
        applied: Applied[Any, Any] = self._applied  # pyright: ignore[reportPrivateUsage]
        log, identity = self._log, self._identity  # pyright: ignore[reportPrivateUsage]
        assert identity is not None
        try:
            await log.commit(Transaction(writes, identity, applied.revision), places.extend)
        except (CommitNotSent, CommitOutcomeUnknown) as failure:
            fenced = WriterFenced(str(failure))
            self._cut_off(fenced)  # pyright: ignore[reportPrivateUsage]
            error = fenced if isinstance(failure, CommitNotSent) else WriteOutcomeUnknown(str(failure))
            for pending in group:
                if not pending.answer.done():
                    pending.answer.set_exception(error)
            return
        ends = list(applied.revision.next_offsets)
        for shard, offset in places:
            if shard < len(ends):
                ends[shard] = max(ends[shard], offset + 1)
        for pending in group:
            pending.fulfil(pending.decision, applied.state, Revision(applied.revision.store_id, tuple(ends)))

    with patch.object(GroupCommit, "_fly", fly):
        yield True


@contextmanager
def _no_barrier() -> Generator[bool]:
    """Refusals, no-ops and linearizable reads are answered from whatever this replica has applied."""

    async def pass_through(_: Barrier) -> None:
        await asyncio.sleep(0)

    with patch.object(Barrier, "pass_through", pass_through):
        yield True


@contextmanager
def _no_compare_and_set() -> Generator[bool]:
    """The server ignores `expected_revision`."""
    made = ConfigWriteServicer._context  # pyright: ignore[reportPrivateUsage]

    def context(self: ConfigWriteServicer, operation: str, options: Any) -> Any:
        blind = type(options)()
        blind.CopyFrom(options)
        blind.ClearField("expected_revision")
        return made(self, operation, blind)

    with patch.object(ConfigWriteServicer, "_context", context):
        yield True


#: Name -> the build; entered, it returns whether replicas share the identity that fences.
MUTANTS = {
    "fence": _no_fence,
    "read-back": _no_read_back,
    "read barrier": _no_barrier,
    "compare-and-set": _no_compare_and_set,
}
