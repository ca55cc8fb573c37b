"""Tests that wait most of their time, led through it at the same time: each still passes or fails alone.

    def _cluster(test: SideBySideTest) -> AbstractAsyncContextManager[KafkaCluster]:
        return open_cluster(test.fixture("kafka_bootstrap"), test.topic())

    together = SideBySide(cluster=_cluster)

    @together
    @pytest.mark.parametrize("count", [1, 30])
    async def test_writes(cluster: KafkaCluster, count: int) -> None: ...

A parameter that has a maker is made for its test alone and closed after it; `tmp_path` and `tmp_topic` are its own too.
The others are pytest's: parametrized, or fixtures of file or session. The first of these tests that pytest comes to
runs all of the same `together` and lane (`lanes`) that were selected, begun in pytest's order, on one event loop; each
of the others then tells how it ended. So what they share must stand several at once, and a test that kills what others
use is not for it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.lanes import lane_of
from tests.support.topic_names import topic_names

Maker = Callable[["SideBySideTest"], AbstractAsyncContextManager[Any]]
Body = Callable[..., Coroutine[Any, Any, None]]

#: Fixtures of each test that every one of these tests may take.
_OWN = ("tmp_path", "tmp_topic")


class SideBySideTest:
    """One of the tests, as its makers see it: they are called before any test begins."""

    def __init__(self, item: pytest.Function, body: Body, makers: Mapping[str, Maker], request: Any) -> None:
        self.id = item.nodeid
        self.topic = topic_names(item.name)
        """As the fixture `tmp_topic`."""
        self.parameters: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
        """What it is parametrized with."""
        self._request = request
        self._name = item.name
        names = inspect.signature(body).parameters
        given = {name: self._given(name) for name in names if name not in makers}
        self._body = functools.partial(body, **given)
        self._made = {name: makers[name](self) for name in names if name in makers}

    def fixture(self, name: str) -> Any:
        """A fixture of the file or the session."""
        return self._request.getfixturevalue(name)

    def folder(self) -> Path:
        """As the fixture `tmp_path`."""
        return self.fixture("tmp_path_factory").mktemp(re.sub(r"\W", "_", self._name)[:30])

    def _given(self, name: str) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        return {"tmp_path": self.folder, "tmp_topic": lambda: self.topic}.get(name, lambda: self.fixture(name))()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            made = {name: await stack.enter_async_context(one) for name, one in self._made.items()}
            await self._body(**made)


class SideBySide:
    """A decorator for tests, of one file or of several. `makers`: of the parameters that are made for each test;
    `parameters`: names of further ones that only makers look at; `at_once`: more would only wait for the processors,
    within the bounds their waits have."""

    def __init__(self, *parameters: str, at_once: int = 8, **makers: Maker) -> None:
        self._parameters = parameters
        self._at_once = at_once
        self._makers = makers
        self._bodies: dict[Any, Body] = {}
        self._errors: dict[str, BaseException | None] = {}

    def __call__(self, body: Body) -> Callable[..., None]:
        def test(request: pytest.FixtureRequest, **_given: object) -> None:
            if request.node.nodeid not in self._errors:
                asyncio.run(self._run(self._selected(request)))
            if (error := self._errors[request.node.nodeid]) is not None:
                raise error

        functools.update_wrapper(test, body)
        kept = [name for name in inspect.signature(body).parameters if name not in {*self._makers, *_OWN}]
        names = dict.fromkeys(["request", *self._parameters, *kept])
        signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names])
        test.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]  # what pytest looks at
        self._bodies[test] = body
        return test

    def _selected(self, request: pytest.FixtureRequest) -> list[SideBySideTest]:
        found: list[SideBySideTest] = []
        lane = lane_of(request.node)
        for item in request.session.items:
            function: Any = getattr(item, "function", None)
            if isinstance(item, pytest.Function) and function in self._bodies and lane_of(item) == lane:
                found.append(SideBySideTest(item, self._bodies[function], self._makers, request))
        return found

    async def _run(self, tests: list[SideBySideTest]) -> None:
        free = asyncio.Semaphore(self._at_once)

        async def run(test: SideBySideTest) -> None:
            error: BaseException | None = None
            try:
                async with free:
                    await test.run()
            except (Exception, pytest.fail.Exception) as raised:  # noqa: BLE001  # raised where pytest asks for the test
                error = raised
            self._errors[test.id] = error

        await asyncio.gather(*(run(test) for test in tests))
