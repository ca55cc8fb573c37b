"""A live Connect 4.3.1 and we say the same of generated configs, whole answers compared.

`make test` asks a few of one worker; `make soak` asks thousands, of workers with every policy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from herdmesh.connect.enrichment import WorkerFacts
from herdmesh.connect.errors import ConfigError
from tests.support.beside_java import beside_java
from tests.support.java_connect import JavaConnect, RestError
from tests.support.sizes import SOAKING, soak_or
from tests.support.validations import WORKERS, Config, Json, comparable, config_of, our_answer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

_SEEDS = soak_or(60, 1_000)


@beside_java
@pytest.mark.parametrize("worker", WORKERS if SOAKING else ["eos"])
async def test_java_says_the_same(worker: str, kafka_bootstrap: str, tmp_path: Path) -> None:
    """The first seed that differs is named, with its config. Where Java fails of a null pointer, we refuse."""
    settings, facts = WORKERS[worker]
    java = JavaConnect(kafka_bootstrap, tmp_path, group=f"val-{worker}", settings=settings)
    configs = {seed: config_of(seed) for seed in range(_SEEDS)}
    answers = await asyncio.to_thread(_asked, java, configs)
    await asyncio.to_thread(_assert_same, configs, answers, facts)


def _assert_same(configs: dict[int, Config], answers: dict[int, Json | RestError], facts: WorkerFacts) -> None:
    for seed, config in configs.items():
        ours, answer = our_answer(config, facts), answers[seed]
        if isinstance(answer, RestError) and "NullPointerException" in str(answer):
            assert isinstance(ours, ConfigError) or ours["error_count"], (seed, config)
        elif isinstance(answer, RestError):
            assert isinstance(ours, ConfigError), (seed, config, str(answer))
            assert comparable(str(ours)) in comparable(str(answer)), (seed, config)
        else:
            assert ours == answer, (seed, config)


def _asked(java: JavaConnect, configs: dict[int, Config]) -> dict[int, Json | RestError]:
    with java:
        return {seed: _answer(java, config) for seed, config in configs.items()}


def _answer(java: JavaConnect, config: Config) -> Json | RestError:
    try:
        return java.request("PUT", f"/connector-plugins/{config['connector.class']}/config/validate", config)
    except RestError as error:
        return error
