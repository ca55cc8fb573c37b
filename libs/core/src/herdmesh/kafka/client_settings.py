"""Settings that clients of stores and of the record loop share. Owns nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_AUTO_CREATION: Mapping[str, Any] = {"allow.auto.create.topics": False}
"""For every client but those that are to make topics. Asked for a topic by name, the broker would make it where it
makes topics for whoever asks (its default): one that was deleted under its user would come back empty, and look like a
mistake of nobody. librdkafka's admin clients are producers, whose default it is."""
