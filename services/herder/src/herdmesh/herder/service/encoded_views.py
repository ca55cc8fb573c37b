"""Encoded views of connectors and workers: each is encoded once per change, and all callers share the bytes.

Owns the cache of views, their versions and the pages joined from them. Does not own the content of a view
(`state.views`), nor its wire format (`wire.views`).

How: the loop marks the views that an event changed, and a marked view is built again when a caller requests it. Other
influences (a worker that joins ends a condition of a unit elsewhere, time passes) are checked in rounds, at most one
in `ROUND_MS`, and only while callers send requests. A view that comes out equal keeps its version and its bytes.

Invariants: a served view is up to date in everything that was marked, and at most `ROUND_MS` old in all else; one of
`connector_now` is up to date in everything. A version belongs to one view for ever, so that a watch remembers numbers
and not views.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from herdmesh.api.herder.v1 import config_messages_pb2 as pb
from herdmesh.herder.state import Herder
from herdmesh.herder.state.model import instructions as ins
from herdmesh.herder.state.views.views import ConnectorView, WorkerView
from herdmesh.herder.wire import values, views
from herdmesh.rpc import encoded, revisions
from herdmesh.topicstore.contract import Revision

ROUND_MS: Final = 100
#: bytes of cached pages; a page is cached until the next change.
_PAGES_BYTES_MAX: Final = 8 * 1024 * 1024
#: the number of the connector field in every response that has one, so that its bytes are the same in all of them.
CONNECTOR_FIELD: Final = pb.ListConnectorsResponse.CONNECTORS_FIELD_NUMBER
_META_FIELD: Final = pb.ListConnectorsResponse.META_FIELD_NUMBER

ViewT = TypeVar("ViewT", ConnectorView, WorkerView)


class Shown(Generic[ViewT]):
    """One view with its version and, once requested, its encoded forms."""

    __slots__ = ("_encoded", "round", "version", "view")

    def __init__(self, version: int, view: ViewT) -> None:
        self.version = version
        self.view = view
        #: the round in which it was checked last; 0 = it was marked since.
        self.round = 0
        self._encoded: dict[int, bytes] = {}

    def bytes_as(self, variant: int, make: Callable[[ViewT], bytes]) -> bytes:
        """The view's bytes in one form; the first request encodes them."""
        found = self._encoded.get(variant)
        if found is None:
            found = self._encoded[variant] = make(self.view)
        return found


class EncodedMeshViews:
    """Cache of one herder; use it on its event loop. `made_count` is the number of views encoded so far."""

    def __init__(self, herder: Herder, clock_ms: Callable[[], int] = values.monotonic_ms) -> None:
        self.made_count = 0
        self._herder = herder
        self._clock_ms = clock_ms
        self._connectors: dict[str, Shown[ConnectorView]] = {}
        self._workers: dict[str, Shown[WorkerView]] = {}
        self._versions = itertools.count(1)
        self._round = 1
        self._round_ms = clock_ms()
        self._marks = 0
        self._pages: OrderedDict[Hashable, bytes] = OrderedDict()
        self._pages_stamp = (0, 0)
        self._revision: Revision | None = None
        self._meta = encoded.field(_META_FIELD, b"")

    # --- what changed

    def mark(self, changes: ins.ViewsChanged) -> None:
        """The state reports that these views changed."""
        self._marks += 1
        for name in changes.connectors:
            shown = self._connectors.get(name)
            if shown is not None:
                shown.round = 0
                if not self._herder.has_connector(name):
                    del self._connectors[name]
        for worker_id in changes.workers:
            worker = self._workers.get(worker_id)
            if worker is not None:
                worker.round = 0

    def forget(self) -> None:
        """The role changed: every view must be built again."""
        self._marks += 1
        self._connectors.clear()
        self._workers.clear()

    # --- reading

    def connector(self, name: str) -> Shown[ConnectorView] | None:
        """One connector; None when it does not exist."""
        self._begin_round()
        shown = self._connectors.get(name)
        if shown is not None and shown.round == self._round:
            return shown
        return self.connector_now(name)

    def connector_now(self, name: str) -> Shown[ConnectorView] | None:
        """Like `connector`, but always compared with the state of this moment."""
        view, shown = self._herder.connector(name), self._connectors.get(name)
        if view is None:
            self._connectors.pop(name, None)
            return None
        if shown is None or shown.view != view:
            shown = self._connectors[name] = Shown(next(self._versions), view)
        shown.round = self._round
        return shown

    def worker(self, worker_id: str) -> Shown[WorkerView] | None:
        """One worker; None when it is gone."""
        self._begin_round()
        shown = self._workers.get(worker_id)
        if shown is not None and shown.round == self._round:
            return shown
        view = self._herder.worker(worker_id)
        if view is None:
            self._workers.pop(worker_id, None)
            return None
        if shown is None or shown.view != view:
            shown = self._workers[worker_id] = Shown(next(self._versions), view)
        shown.round = self._round
        return shown

    # --- encoded

    def full(self, shown: Shown[ConnectorView]) -> bytes:
        """A whole connector, as the field of a response."""
        return shown.bytes_as(pb.CONNECTOR_VIEW_FULL, self._full)

    def status(self, shown: Shown[ConnectorView]) -> bytes:
        """The status of a connector, as the field of a list."""
        return shown.bytes_as(pb.CONNECTOR_VIEW_STATUS, self._status)

    def of_worker(self, shown: Shown[WorkerView], number: int) -> bytes:
        """A worker, as field `number` of a response."""
        return encoded.field(number, shown.bytes_as(0, self._worker))

    def meta(self) -> bytes:
        """The meta that opens every response at this moment."""
        revision = self._herder.config_revision
        if revision is not self._revision:
            self._revision = revision
            self._meta = encoded.field(_META_FIELD, revisions.meta(revision).SerializeToString())
        return self._meta

    def page(self, names: Sequence[str], key: Hashable, rest: bytes, *, status: bool) -> bytes:
        """The fields of these connectors and `rest`, joined; cached under `key` until the next change."""
        self._begin_round()
        stamp = (self._round, self._marks)
        if stamp != self._pages_stamp:
            self._pages.clear()
            self._pages_stamp = stamp
        page = self._pages.get(key)
        if page is None:
            as_sent = self.status if status else self.full
            sent = [as_sent(shown) for name in names if (shown := self.connector(name)) is not None]
            page = b"".join((*sent, rest))
            self._pages[key] = page
            while len(self._pages) > 1 and sum(map(len, self._pages.values())) > _PAGES_BYTES_MAX:
                self._pages.popitem(last=False)
        return page

    def kept_page(self, key: Hashable) -> bytes | None:
        """The cached page of `key`, if nothing changed since it was joined."""
        self._begin_round()
        return self._pages.get(key) if (self._round, self._marks) == self._pages_stamp else None

    # --- inside

    def _begin_round(self) -> None:
        now_ms = self._clock_ms()
        if now_ms - self._round_ms >= ROUND_MS:
            self._round += 1
            self._round_ms = now_ms

    def _full(self, view: ConnectorView) -> bytes:
        self.made_count += 1
        return encoded.field(CONNECTOR_FIELD, views.connector(view).SerializeToString())

    def _status(self, view: ConnectorView) -> bytes:
        self.made_count += 1
        return encoded.field(CONNECTOR_FIELD, views.connector_status(view).SerializeToString())

    def _worker(self, view: WorkerView) -> bytes:
        self.made_count += 1
        return views.worker(view).SerializeToString()
