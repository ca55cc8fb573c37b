"""Plugin folders for tests: files as `python -m venv` and an installer leave them, written without either.

Owns the connector `org.example.Greet` and beside it the transformation `org.example.Louder`, whose two versions need
two versions of the library `tinylib`: each of their parts reports which it got; and the source `org.example.Seconds`,
which answers requests for its offset at a time. No network, no process.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

GREET = "org.example.Greet"
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"

_CONNECTOR = """
import os
import tinylib
from herdmesh.sdk import (
    ConfigDef, ConfigError, ConfigKey, FieldViolation, Importance, Recommender, RecordTransformation, RetriableError,
    SinkConnector, SinkTask, Type, Validator, waits,
)

def _loud(name, value):
    if value and value != value.upper():
        message = f"{{value}} is not loud enough for tinylib {{tinylib.VERSION}}"
        raise ConfigError(message, field=name, fix=value.upper())

class Greet(SinkConnector):
    class_name = "org.example.Greet"
    aliases = ("Greet",)
    version = "{version}"

    @classmethod
    def config_def(cls):
        return ConfigDef(
            ConfigKey("file", Type.STRING, "", Importance.HIGH, f"For tinylib {{tinylib.VERSION}}."),
            ConfigKey("word", Type.STRING, "HELLO", Importance.LOW, "Said first.", Validator("loud", _loud),
                      recommender=Recommender(lambda name, parsed: [tinylib.VERSION, str(parsed["file"])])),
            ConfigKey("key", Type.PASSWORD, None, Importance.LOW, "Not told."),
        )

    def validate(self, config):
        if config.get("file") == "nowhere":
            return [ConfigError("nowhere is no file", field="file", fix="name one")]
        if config.get("file") == "print":
            print("the key is " + config["key"], flush=True)
        return []

    def warnings(self, config):
        return [FieldViolation("word", f"said with tinylib {{tinylib.VERSION}}", "")]

    def start(self, config):
        super().start(config)
        if config.get("file") == "asks":
            self.context.request_task_reconfiguration()
        if config.get("file") == "asks in a loop":
            for _ in range(20_000):
                self.context.request_task_reconfiguration()
        if config.get("file") == "offsets":
            self.config["word"] = str(self.context.committed_offsets([{{"p": 1}}, None]))
        if config.get("file") == "fails":
            self.context.raise_error(ConfigError("the table is gone", field="file", fix="make it"))
        if config.get("file") == "waits":  # as after 5 s
            waits.SHOWN_AFTER_S = 0.0
            self.waiting = waits.Standing()
            self.waiting.goes_on("PostgreSQL db:5432", "no room", tried=True)

    def task_class(self):
        return "greet:GreetTask"

    def task_configs(self, max_tasks):
        file = self.config.get("file")
        if file == "waits":
            self.waiting.over()
        if file == "trouble":
            raise RuntimeError("no such table")
        if file == "away":
            raise RetriableError("the table is away")
        if file == "dies":
            os._exit(3)
        return [{{"file": file, "said": self.config.get("word", "HELLO") + " " + tinylib.VERSION}}] * max_tasks

    def alter_offsets(self, config, offsets):
        return offsets == {{("t", 0): 5, ("t", 1): None}}

class GreetTask(SinkTask):
    def start(self, config, context):
        import herdmesh.connect.model.data, msgspec
        self.file = open(config["file"], "a")
        self.said = f"{{Greet.version}} {{tinylib.VERSION}} {{tinylib.__file__}} {{msgspec.__file__}} "
    def put(self, batch):
        self.file.writelines(self.said + str(value) + "\\n" for value in batch.values)
    def flush(self):
        self.file.flush()
    def stop(self):
        self.file.close()

def _short(name, value):
    if len(value) > 1:
        raise ConfigError(f"{{value}} is too long for tinylib {{tinylib.VERSION}}", field=name, fix=value[0])

class Louder(RecordTransformation):
    class_name = "org.example.Louder"
    aliases = ("Louder",)

    @classmethod
    def config_def(cls):
        return ConfigDef(
            ConfigKey("mark", Type.STRING, "!", Importance.LOW, f"For tinylib {{tinylib.VERSION}}.",
                      Validator("short", _short)),
        )

    def configure(self, config):
        self.mark = self.config_def().parse(config)["mark"]
        if self.mark == "?":
            raise ConfigError(f"no questions in tinylib {{tinylib.VERSION}}", field="mark", fix="!")

    def apply(self, record):
        record.value = f"{{record.value}}{{self.mark}}{{tinylib.VERSION}}"
        return record
"""


_SECONDS = """
import os
from herdmesh.sdk import ConfigDef, ConfigKey, Importance, RecordSourceTask, Schema, SourceConnector, SourceRecord, Type

class Seconds(SourceConnector):
    class_name = "org.example.Seconds"
    aliases = ("Seconds",)
    version = "1.0"

    @classmethod
    def config_def(cls):
        names = ("topic", "count", "pids")
        return ConfigDef(*(ConfigKey(name, Type.STRING, "", Importance.HIGH, "Needed.") for name in names))

    def task_class(self):
        return "seconds:SecondsTask"

    def task_configs(self, max_tasks):
        return [dict(self.config)]

    def exactly_once_support(self, config):
        return True

    def alter_offsets(self, config, offsets):
        return all(offset is None or offset["next"] >= 0 for _, offset in offsets)

    def offsets_at(self, config, time_ms, committed):
        with open(config["pids"], "a") as file:
            file.write(f"{os.getpid()}\\n")
        second = -(-time_ms // 1000)
        return [(partition, {"next": second}) for partition, offset in committed if offset["next"] > second]

class SecondsTask(RecordSourceTask):
    def start(self, config, context):
        super().start(config, context)
        self.topic, self.count = config["topic"], int(config["count"])
        self.next = (context.committed_offset({"of": "time"}) or {"next": 0})["next"]

    def poll_records(self):
        while self.next < self.count:
            self.next += 1
            yield SourceRecord(self.topic, str(self.next - 1), value_schema=Schema("STRING"),
                               source_partition={"of": "time"}, source_offset={"next": self.next})
"""


class Environment:
    """A virtual environment at `folder`, made by writing its files."""

    def __init__(self, folder: Path, python: str = _PYTHON) -> None:
        self.folder = folder
        self.packages = folder / "lib" / python / "site-packages"
        self.packages.mkdir(parents=True, exist_ok=True)
        (folder / "pyvenv.cfg").write_text("include-system-site-packages = false\n")

    def install(
        self,
        name: str,
        version: str,
        modules: Mapping[str, str],
        *,
        connectors: Sequence[str] = (),
        requires: Sequence[str] = (),
        **others: Sequence[str],
    ) -> Environment:
        """A distribution with these files (path -> text) and entry points (`Name = module:Class`); `others` are
        `transformations`, `predicates` and `converters`."""
        info = self.packages / f"{name}-{version}.dist-info"
        info.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
        (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
        groups = {kind: named for kind, named in {"connectors": connectors, **others}.items() if named}
        if groups:
            text = "".join(
                f"[herdmesh.{kind}]\n" + "".join(f"{one}\n" for one in named) for kind, named in groups.items()
            )
            (info / "entry_points.txt").write_text(text)
        for path, text in modules.items():
            file = self.packages / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return self


def greet(folder: Path, version: str, tinylib: str) -> Environment:
    """An environment with Greet in that version and the `tinylib` that it requires. It also has another `msgspec` than
    Herdmesh, as one does whose installer brought Herdmesh's own requirements."""
    environment = Environment(folder)
    environment.install("tinylib", tinylib, {"tinylib/__init__.py": f'VERSION = "{tinylib}"\n'})
    environment.install("msgspec", "0.0.1", {"msgspec/__init__.py": 'raise ImportError("of another version")\n'})
    environment.install(
        "greet", version, {"greet.py": _CONNECTOR.format(version=version)},
        connectors=["Greet = greet:Greet"], requires=[f"tinylib=={tinylib}", "msgspec"],
        transformations=["Louder = greet:Louder"],
    )  # fmt: skip
    return environment


def seconds(folder: Path) -> Environment:
    """An environment with Seconds: the seconds since 1970 as records, up to `count`. It writes into the file `pids` the
    process that is queried for its offset at a time.
    """
    return Environment(folder).install(
        "seconds", "1.0", {"seconds.py": _SECONDS}, connectors=["Seconds = seconds:Seconds"]
    )
