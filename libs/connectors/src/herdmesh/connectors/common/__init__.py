"""Building blocks of several connector families, beside what the SDK gives to every author.

Owns connectors with one reading function (`read_connector`), warnings about keys without effect (`key_warnings`, with
the keys of the Java connectors in `known_keys`), periodic work and discovery (`periodic`), cached source signs
(`source_signs`) and checks of topic names (`topic_names`). Knows no target and no source.
"""

from __future__ import annotations

from herdmesh.connectors.common.key_warnings import no_effect, warned_settings
from herdmesh.connectors.common.periodic import Lookout, Repeated
from herdmesh.connectors.common.read_connector import ReadConnector
from herdmesh.connectors.common.source_signs import SIGN_KEPT_S, KeptSigns
from herdmesh.connectors.common.topic_names import check_topics, topic_problems

__all__ = [
    "SIGN_KEPT_S",
    "KeptSigns",
    "Lookout",
    "ReadConnector",
    "Repeated",
    "check_topics",
    "no_effect",
    "topic_problems",
    "warned_settings",
]
