"""Settings that clients of stores and of the record loop share. Owns nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_AUTO_CREATION: Mapping[str, Any] = {"allow.auto.create.topics": False}
"""Settings of every client except those that create topics. A metadata request by name would create the topic on a
broker with automatic creation (its default). A topic that was deleted while in use would come back empty, with no error
to show the mistake. librdkafka's admin clients are producers, for which automatic creation is the default.
"""
