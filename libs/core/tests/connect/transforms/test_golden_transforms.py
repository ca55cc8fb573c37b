"""Every transformation and predicate, equal to the real 4.3.1 class: all golden vectors, through the compiled loop and
step by step.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from herdmesh.connect.chain.compiled_loop import Diverged, Loop, Single, Step
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.json_text import record_json
from herdmesh.connect.transforms import make_transformation
from herdmesh.connect.transforms.base import Alone, Shape
from herdmesh.connect.transforms.predicates import PREDICATES
from libs.core.tests.connect.differences import wanted_message
from libs.core.tests.connect.golden_vectors import (
    Vector,
    by,
    columns_of,
    is_jdk_made,
    same_json,
    shown,
    told,
    try_each,
    vectors,
)

_GROUPS = by("transform", vectors("transforms.jsonl"))


@pytest.mark.parametrize("transform", _GROUPS)
def test_results_equal_the_java_class(transform: str) -> None:
    try_each(_GROUPS[transform], _as_the_java_class)


def _as_the_java_class(vector: Vector) -> None:
    error = vector.get("error")
    if error is None:
        for result in results(vector):
            assert_same(result, vector["output"])
        return
    if error["phase"] != "configure":
        step_of(vector)
    with pytest.raises(ConnectError) as failed:
        (step_of if error["phase"] == "configure" else results)(vector)
    assert failed.value.java_class == error["class"]
    if not is_jdk_made(error):
        assert str(failed.value) == wanted_message(vector)


def step_of(vector: Vector) -> Step:
    """The vector's transformation, and its predicate."""
    made = make_transformation("type", vector["transform"])
    made.configure(vector["config"])
    if "predicate" not in vector:
        return Step("t", made)
    predicate = PREDICATES[vector["predicate"]]()
    predicate.configure(vector["predicateConfig"])
    return Step("t", made, predicate, vector["negate"])


def results(vector: Vector) -> list[Vector | None]:
    """The vector's record after its step: in a loop, when one can be compiled for it, and alone."""
    step = step_of(vector)
    batch = columns_of(record_json.record_of(vector["input"]))
    before = shown(batch)
    shape = Shape(batch.key_schema, batch.value_schema, source=vector["input"]["kind"] == "source")
    found: list[Vector | None] = []
    try:
        looped = Loop([step], shape, owned=False).run(batch)
        for topic in looped.topics:
            looped.topic = topic
        for partition in looped.partitions:
            looped.partition = partition
        found.append(shown(looped) if looped.values else None)
    except Diverged:
        pass
    batch.headers = [list(record_json.record_of(vector["input"]).headers)]
    cells = (batch.keys[0], batch.values[0], batch.topic, batch.headers[0], batch.partition, batch.timestamps_ms[0])
    applies = step.applies(cells, shape, batch, 0)
    if "test" in vector:
        assert step.predicate is not None
        assert step.predicate.test(*cells[:4]) is vector["test"]
    if isinstance(step.transformation, Alone):
        after = step.transformation.alone(cells, shape, batch, 0)
    else:
        after = Single(step, shape).run(cells, batch, 0) if applies else (cells, shape)
    assert same_json(told(shown(columns_of(record_json.record_of(vector["input"])))), told(before))
    if after is None:
        return [*found, None]
    (key, value, topic, headers, batch.partition, time_ms), shape = after
    batch.timestamps_ms = [time_ms]
    batch.keys, batch.values, batch.topic, batch.headers = [key], [value], cast("str", topic), [headers]
    batch.key_schema, batch.value_schema = shape.key, shape.value
    return [*found, shown(batch)]


def assert_same(found: Vector | None, wanted: Any) -> None:
    """Fails with the members that differ."""
    if found is None or wanted is None:
        assert found is wanted
        return
    expected = told(wanted)
    differing = {name: (found[name], item) for name, item in expected.items() if not same_json(found[name], item)}
    assert not differing
