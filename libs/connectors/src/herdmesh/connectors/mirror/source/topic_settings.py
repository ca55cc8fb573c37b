"""Sync of topic settings from the source's topics to their copies (MirrorMaker 2: `syncTopicConfigs`).

Owns finding the differences and applying them once over all topics. When: `connector`.

Invariant: a setting named by `config.properties.exclude` is never changed, and neither is a topic that is not a copy.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from herdmesh.connect.java import matches
from herdmesh.connectors.mirror.cluster import Cluster
from herdmesh.connectors.mirror.source.settings import MirrorSettings
from herdmesh.sdk import RetriableError

_log = logging.getLogger(__name__)


def changes_of(wanted: Mapping[str, str], there: Mapping[str, str], excluded: str) -> dict[str, str | None]:
    """Return the changes that give a copy the settings of its topic, None = remove; both sides are the settings of the
    topics themselves. `excluded`: a Java regular expression for names.
    """
    changes = {name: value for name, value in wanted.items() if there.get(name) != value}
    gone = dict.fromkeys(name for name in there if name not in wanted)
    return {name: value for name, value in {**changes, **gone}.items() if not matches(excluded, name)}


def keep_settings(settings: MirrorSettings, target: Cluster) -> None:
    """Change each existing copy at the target whose settings differ. Raises RetriableError while a cluster does not
    respond; a refused change of one topic is logged and does not affect the others.
    """
    topics = [topic for topic in sorted(settings.source.partition_counts()) if settings.selection.has(topic)]
    copies = {settings.naming.remote(topic): topic for topic in topics}
    there = target.topic_settings(copies)
    wanted = settings.source.topic_configs(copies[copy] for copy in there)
    for copy, found in there.items():
        changes = changes_of(wanted[copies[copy]], found, "|".join(settings.properties_exclude))
        if not changes:
            continue
        try:
            target.set_topic_settings(copy, changes)
        except RetriableError as error:
            _log.warning("cannot change the settings of topic %s now, retrying later: %s", copy, error)
        else:
            _log.info(
                "changed the settings of topic %s to those of %s: %s", copy, copies[copy], ", ".join(sorted(changes))
            )
