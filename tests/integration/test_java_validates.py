"""Validation by a live Connect 4.3.1 and by us, equal for thousands of generated configs, for workers with every
policy.

`make soak` alone: `make test` validates a few with a worker that runs anyway, in test_java_agrees.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.asking_java import assert_validates_as_java
from tests.support.beside_java import beside_java
from tests.support.java_connect import JavaConnect
from tests.support.sizes import SOAKING
from tests.support.validations import WORKERS

pytestmark = [
    *(pytest.mark.kafka, pytest.mark.timeout(600)),
    pytest.mark.skipif(not SOAKING, reason="make test asks the worker of test_java_agrees.py"),
]

_SEEDS = 1_000


@beside_java
@pytest.mark.parametrize("worker", WORKERS)
async def test_java_gives_the_same_validation_answers(worker: str, kafka_bootstrap: str, tmp_path: Path) -> None:
    settings, facts = WORKERS[worker]
    java = JavaConnect(kafka_bootstrap, tmp_path, group=f"val-{worker}", settings=settings)

    def ask() -> None:
        with java:
            assert_validates_as_java(java, facts, range(_SEEDS))

    await asyncio.to_thread(ask)
