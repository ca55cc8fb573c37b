"""The reader of a connector's changes, from the audit topic.

Owns the choice of the records to read: the state's index has their positions (`state.history`), the topic store fetches
them. The servicers convert them.

Invariant: a page shows the topic as it was at or after the call; a config is returned only for exactly the requested
revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from herdmesh.configstore.effects.stores import ConfigTopicStore
from herdmesh.connect.topics import AuditRecord, Properties, audit_topic
from herdmesh.rpc import revisions
from herdmesh.rpc.errors import HistoryNotFound
from herdmesh.topicstore import Revision


@dataclass(frozen=True, slots=True)
class Page:
    """Changes, newest first. `next_before` is the audit offset below which the next page begins; None = no older
    changes.
    """

    changes: Sequence[AuditRecord]
    next_before: int | None


async def page(store: ConfigTopicStore, connector: str, before: int | None, size: int) -> Page:
    """Up to `size` changes of `connector` below audit offset `before` (None = from the newest)."""
    await store.barrier()  # a replica may have applied a write but not yet its audit record
    places = store.state.history.before(connector, before, size + 1)
    offsets = [place.audit_offset for place in places[:size]]
    changes = await _read(store, offsets)
    return Page(list(reversed(changes)), offsets[-1] if len(places) > size else None)


async def config_at(store: ConfigTopicStore, connector: str, revision: Revision) -> Properties:
    """The config that the change of this revision wrote, secrets redacted. Raises HistoryNotFound with the reason."""
    await store.barrier()
    text = revisions.to_text(revision)
    offset = revision.next_offsets[0] if len(revision.next_offsets) == 1 else 0
    places = store.state.history.at(connector, offset)
    if not places:
        raise HistoryNotFound(connector, text, "no change in the history has this revision")
    change = next((one for one in await _read(store, places) if one.revision == text), None)
    if change is None:
        raise HistoryNotFound(connector, text, "the audit topic does not have that change any more")
    config = change.changes.get("config")
    if not isinstance(config, dict):
        raise HistoryNotFound(connector, text, f"{change.operation} wrote no config")
    return cast(Properties, config)


async def _read(store: ConfigTopicStore, offsets: Sequence[int]) -> list[AuditRecord]:
    decoded = (audit_topic.decode(record.key, record.value) for record in await store.read_audit(sorted(offsets)))
    return [record for record in decoded if isinstance(record, AuditRecord)]
