"""Worlds of the standard suite with a real broker as the source. Owns no test."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.sdk.testing import SourceWorld
from libs.core.tests.engine.harness import Kafka


class BrokerWorld(SourceWorld):
    """A topic of one partition, with a number in each record's value."""

    def __init__(self, folder: Path, broker: Kafka) -> None:
        super().__init__(folder)
        self._broker = broker
        broker.create_topic(self.name, 1)

    def write(self, numbers: range) -> None:
        self._broker.produce(self.name, [b"%d" % number for number in numbers], key=None)


class OnTheBroker:
    """Base class of suites that provides the broker of the worlds' topics."""

    @pytest.fixture
    def outside(self, kafka_bootstrap: str) -> Kafka:
        return Kafka(kafka_bootstrap)
