"""Traces: the trace context of the last call that wrote each connector, for the starts that it causes.

Owns the trace contexts, as the texts that callers sent. In memory only: a start under another leader belongs to no
trace.

Invariant: a context is given to starts within `TRACE_MS` of its call only, so that a rebalance of next week is no part
of it; the number of contexts is bounded.
"""

from __future__ import annotations

from collections import OrderedDict

TRACE_MS = 60_000
TRACES_MAX = 10_000


class Traces:
    """Trace contexts by connector, oldest first."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, str]] = OrderedDict()

    def begin(self, connector: str, traceparent: str, now: int) -> None:
        """A call writes the connector. A call without a context deletes the context of an earlier one."""
        self._known.pop(connector, None)
        if traceparent:
            self._known[connector] = now, traceparent
        while self._known and (len(self._known) > TRACES_MAX or self._is_old(next(iter(self._known)), now)):
            self._known.popitem(last=False)

    def of(self, connector: str, now: int) -> str:
        """The trace context for a start of the connector at this moment; empty = none."""
        return "" if connector not in self._known or self._is_old(connector, now) else self._known[connector][1]

    def names(self) -> list[str]:
        """The connectors with a trace context, oldest first."""
        return list(self._known)

    def _is_old(self, connector: str, now: int) -> bool:
        return now - self._known[connector][0] > TRACE_MS
