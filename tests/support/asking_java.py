"""Comparison of validation by a live Java worker and by Herdmesh: generated configs, whole answers.

Owns the requests and the comparison; `validations` owns the configs and our answers, the test owns the worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.validation.framework_keys import WorkerFacts
from tests.support.java_connect import JavaConnect, RestError
from tests.support.validations import Config, Json, comparable, config_of, our_answer


def assert_validates_as_java(java: JavaConnect, facts: WorkerFacts, seeds: Iterable[int]) -> None:
    """Compare the answers for each seed; the first difference is reported with its config. Where Java fails with a null
    pointer, we refuse. Blocks.
    """
    for seed in seeds:
        config = config_of(seed)
        answer, ours = _answer(java, config), our_answer(config, facts)
        if isinstance(answer, RestError) and "NullPointerException" in str(answer):
            assert isinstance(ours, ConfigError) or ours["error_count"], (seed, config)
        elif isinstance(answer, RestError):
            assert isinstance(ours, ConfigError), (seed, config, str(answer))
            assert comparable(str(ours)) in comparable(str(answer)), (seed, config)
        else:
            assert ours == answer, (seed, config)


def _answer(java: JavaConnect, config: Config) -> Json | RestError:
    try:
        return java.request("PUT", f"/connector-plugins/{config['connector.class']}/config/validate", config)
    except RestError as error:
        return error
