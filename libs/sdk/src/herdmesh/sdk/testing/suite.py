"""The tests that both suites share: a connector's description, its config, its tasks' configs.

Owns these tests and the fixture that creates worlds. Invariant: each test begins with a new world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

import pytest

from herdmesh.connect.config import REQUIRED, ConfigDef, Type
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins import PluginRegistry, describe
from herdmesh.connect.spi import Connector, SinkTask, SourceTask
from herdmesh.sdk.testing.configs import full_config, new_task, problems_of, started, task_configs_of
from herdmesh.sdk.testing.worlds import World

W = TypeVar("W", bound=World)
NewWorld = Callable[[], W]
_NAME: Final = "trial"
_NO_VALUE: Final = {
    Type.INT: "no number",
    Type.SHORT: "no number",
    Type.LONG: "no number",
    Type.DOUBLE: "no number",
    Type.BOOLEAN: "perhaps",
}
"""A value that no key of the type accepts."""


class Worlds(Generic[W]):
    """The parameters of a suite, and the fixture that creates worlds from them."""

    connector: ClassVar[type[Connector]]
    """The class under test."""
    world: ClassVar[Callable[..., World]]
    """Its world, created with a folder, and with the value of the fixture `outside` unless that is None."""

    @pytest.fixture
    def outside(self) -> Any:
        """Fixture of what a world needs besides a folder, such as the address of a server. A suite with such a world
        defines its own fixture of this name, which may use others.
        """
        return None

    @pytest.fixture
    def new_world(self, tmp_path: Path, outside: Any) -> Iterator[NewWorld[W]]:
        """Create independent worlds; they are closed after the test."""
        made: list[Any] = []
        numbers = count()

        def make() -> Any:
            folder = tmp_path / f"world-{next(numbers)}"
            folder.mkdir()
            made.append(type(self).world(folder) if outside is None else type(self).world(folder, outside))
            return made[-1]

        yield make
        for one in made:
            one.close()


class ConnectorSuite(Worlds[W]):
    """Tests that every connector has to pass."""

    def test_the_plugin_can_be_found_and_described(self, new_world: NewWorld[W]) -> None:
        """Its names, its version, a stable definition, and a task class that can be loaded."""
        connector = self.connector
        assert connector.class_name, "class_name is empty"
        assert connector.version, "version is empty"
        definition = connector.config_def()
        assert isinstance(definition, ConfigDef), "config_def() gives no ConfigDef"
        again = connector.config_def()
        assert _shape(again) == _shape(definition), "config_def() gives another definition each time"
        undocumented = [key.name for key in definition.keys.values() if not key.doc.strip()]
        assert not undocumented, f"keys without documentation: {', '.join(undocumented)}"
        registry = PluginRegistry([describe(connector)])
        for name in (connector.class_name, *connector.aliases):
            assert registry.find(name).connector is connector
        new_task(connector)

    def test_a_good_config_is_accepted(self, new_world: NewWorld[W]) -> None:
        """Validation finds no error in the world's config."""
        config = full_config(self.connector, new_world(), _NAME)
        assert problems_of(self.connector, config) == {}

    def test_config_errors_name_their_field(self, new_world: NewWorld[W]) -> None:
        """Missing required keys, invalid numbers, and the bad configs of the world."""
        world = new_world()
        for key in self.connector.config_def().keys.values():
            if key.default is REQUIRED:
                self._check_refused(world, {key.name: None}, key.name, runs=True)
            if key.type in _NO_VALUE:
                self._check_refused(world, {key.name: _NO_VALUE[key.type]}, key.name, runs=True)
        for changes, field in world.bad_configs():
            self._check_refused(world, changes, field, runs=False)

    def test_task_configs_are_the_same_at_every_request(self, new_world: NewWorld[W]) -> None:
        """At most as many as allowed, texts only, and equal ones from another instance: after a pause there is a new
        instance.
        """
        config = full_config(self.connector, new_world(), _NAME)
        first, again = self._task_configs(config), self._task_configs(config)
        for one in first:
            odd = {key: value for key, value in one.items() if not isinstance(value, str | None)}  # pyright: ignore[reportUnnecessaryIsInstance]
            assert not odd, f"a task config must hold strings: {odd}"
        assert again == first, "another instance makes other task configs"
        for most in (1, 2, 8):
            configs = task_configs_of(self.connector, config, most)
            assert len(configs) <= most, f"{len(configs)} task configs where {most} are allowed"

    def _task_configs(self, config: Mapping[str, str | None]) -> list[dict[str, str | None]]:
        connector = started(self.connector, config)
        try:
            return connector.task_configs(3)
        finally:
            connector.stop()

    def _check_refused(self, world: W, changes: Mapping[str, str | None], field: str, *, runs: bool) -> None:
        """`runs`: a run must refuse the config too, because validation may never see it (a reference resolved
        later)."""
        config: dict[str, str | None] = {**full_config(self.connector, world, _NAME), **changes}
        config = {key: value for key, value in config.items() if value is not None}
        problems = problems_of(self.connector, config)
        assert field in problems, f"validation does not name {field} with {dict(changes)}; it names {problems}"
        assert all(problems), f"validation names no field for {problems.get('')}"
        if not runs:
            return
        error = self._error_of(config)
        assert error is not None, f"connector and task start with {dict(changes)}; {field} has to be refused"
        assert error.field == field, f"with {dict(changes)} it names {error.field!r}, not {field}: {error}"

    def _error_of(self, config: Mapping[str, str | None]) -> ConfigError | None:
        """The error of the config when a connector and its first task start; None = both started."""
        try:
            configs = task_configs_of(self.connector, config, 1)
            for one in configs[:1]:
                task = new_task(self.connector)
                try:
                    self._start(task, one)
                finally:
                    task.stop()
        except ConfigError as error:
            return error
        return None

    def _start(self, task: SourceTask | SinkTask, config: Mapping[str, str | None]) -> None:
        """Start a task as a run does. Each suite implements it."""
        raise AssertionError(f"{type(self).__name__} extends SourceSuite or SinkSuite")


def _shape(definition: ConfigDef) -> list[tuple[Any, ...]]:
    return [(key.name, key.type, key.default, key.importance, key.doc) for key in definition.keys.values()]
