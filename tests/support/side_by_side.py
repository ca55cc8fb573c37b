"""Concurrent execution of tests that mostly wait: each still passes or fails alone.

    def _cluster(test: SideBySideTest) -> AbstractAsyncContextManager[KafkaCluster]:
        return open_cluster(test.fixture("kafka_bootstrap"), test.topic())

    together = SideBySide(cluster=_cluster)

    @together
    @pytest.mark.parametrize("count", [1, 30])
    async def test_writes(cluster: KafkaCluster, count: int) -> None: ...

A parameter that has a maker is created for its test alone and closed after it; `tmp_path`, `tmp_topic` and
`record_property` are its own too. The others are pytest's: parametrized, or fixtures of file or session. The first of
these tests that pytest reaches runs all of the same `together` and lane (`lanes`) that were selected, on one event
loop, started in pytest's order but those marked `slow` first; each of the others then reports its own result. So shared
fixtures must allow several users at once, and a test that kills what others use cannot take part. Each has the time
limit it would have alone (marker or setting `timeout`), and one that exceeds it fails for itself: the first carries
all of them, and is not stopped for that.

Tests of several files run side by side where each makes its `together` of one group (`waiting`):
`timed.making(stores=...)`. They share no fixtures but the session's.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.lanes import asked_by, lane_of
from tests.support.topic_names import topic_names

Maker = Callable[["SideBySideTest"], AbstractAsyncContextManager[Any]]
Body = Callable[..., Coroutine[Any, Any, None]]

#: The time limit of a test that carries others: theirs are checked one by one, and their sum is longer than any.
_CARRIER_S = 1_200
#: asyncio's own number is a few more than the machine has processors, and a test would wait until others' threads end.
_THREADS_MAX = 64
#: Fixtures of each test that every one of these tests may use.
_OWN = ("tmp_path", "tmp_topic", "record_property")


class SideBySideTest:
    """One of the tests, as its makers see it: they are called before any test begins."""

    def __init__(self, item: pytest.Function, body: Body, makers: Mapping[str, Maker], request: Any) -> None:
        self.id = item.nodeid
        self.topic = topic_names(item.name)
        """As the fixture `tmp_topic`."""
        self.parameters: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
        """Its parameters."""
        self.is_slow = item.get_closest_marker("slow") is not None
        """It begins before others, so that no slow test begins late."""
        self.limit_s = _limit_s(item)
        self._request = request
        self._item = item
        names = inspect.signature(body).parameters
        given = {name: self._given(name) for name in names if name not in makers}
        self._body = functools.partial(body, **given)
        self._made = {name: makers[name](self) for name in names if name in makers}

    def fixture(self, name: str) -> Any:
        """A fixture of the file or the session."""
        with asked_by(self._item):
            return self._request.getfixturevalue(name)

    def folder(self) -> Path:
        """As the fixture `tmp_path`."""
        return self.fixture("tmp_path_factory").mktemp(re.sub(r"\W", "_", self._item.name)[:30])

    def _given(self, name: str) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        own = {"tmp_path": self.folder, "tmp_topic": lambda: self.topic, "record_property": lambda: self._note}
        return own.get(name, lambda: self.fixture(name))()

    def _note(self, name: str, value: object) -> None:
        self._item.user_properties.append((name, value))

    async def run(self) -> None:
        async with asyncio.timeout(self.limit_s) as limit:
            try:
                async with AsyncExitStack() as stack:
                    made = {name: await stack.enter_async_context(one) for name, one in self._made.items()}
                    await self._body(**made)
            except asyncio.CancelledError:
                if limit.expired():
                    pytest.fail(f"{self.id} took longer than its {self.limit_s:g} s, beside others")
                raise


def _limit_s(item: pytest.Function) -> float:
    """The limit that pytest-timeout would use if the test ran alone."""
    own = [mark.args[0] for mark in item.iter_markers("timeout") if mark.args[0] != _CARRIER_S]
    return float(own[0] if own else item.config.getini("timeout"))


@dataclass
class _Group:
    """Tests that run together."""

    at_once: int
    bodies: dict[Any, tuple[Body, Mapping[str, Maker]]] = field(
        default_factory=dict[Any, tuple[Body, Mapping[str, Maker]]]
    )
    """By the function that pytest calls."""
    errors: dict[str, BaseException | None] = field(default_factory=dict[str, BaseException | None])
    """Results of the tests that ran, by their ids."""

    def selected(self, request: pytest.FixtureRequest) -> list[SideBySideTest]:
        found: list[SideBySideTest] = []
        lane = lane_of(request.node)
        for item in request.session.items:
            function: Any = getattr(item, "function", None)
            if isinstance(item, pytest.Function) and function in self.bodies and lane_of(item) == lane:
                found.append(SideBySideTest(item, *self.bodies[function], request))
        return sorted(found, key=lambda one: not one.is_slow)

    async def run(self, tests: list[SideBySideTest]) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS_MAX))
        free = asyncio.Semaphore(self.at_once)

        async def run(test: SideBySideTest) -> None:
            error: BaseException | None = None
            try:
                async with free:
                    await test.run()
            except (Exception, pytest.fail.Exception) as raised:  # noqa: BLE001  # raised where pytest asks for the test
                error = raised
            self.errors[test.id] = error

        await asyncio.gather(*(run(test) for test in tests))


class SideBySide:
    """A decorator for tests, of one file or of several. `makers`: for the parameters that are created for each test;
    `parameters`: names of further ones that only makers read; `at_once`: more would only wait for the processors,
    within the bounds their waits have.
    """

    def __init__(self, *parameters: str, at_once: int = 8, **makers: Maker) -> None:
        self._parameters = parameters
        self._makers = makers
        self._group = _Group(at_once)

    def making(self, *parameters: str, **makers: Maker) -> SideBySide:
        """A decorator for one file, whose tests run with all others of this group."""
        made = SideBySide(*parameters, at_once=self._group.at_once, **makers)
        made._group = self._group
        return made

    def __call__(self, body: Body) -> Callable[..., None]:
        def test(request: pytest.FixtureRequest, **_given: object) -> None:
            errors = self._group.errors
            if request.node.nodeid not in errors:
                asyncio.run(self._group.run(self._group.selected(request)))
            if (error := errors[request.node.nodeid]) is not None:
                raise error

        functools.update_wrapper(test, body)
        test = pytest.mark.timeout(_CARRIER_S)(test)
        kept = [name for name in inspect.signature(body).parameters if name not in {*self._makers, *_OWN}]
        names = dict.fromkeys(["request", *self._parameters, *kept])
        signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
        test.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]  # what pytest looks at
        self._group.bodies[test] = body, self._makers
        return test
