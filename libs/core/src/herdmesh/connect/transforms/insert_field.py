"""InsertField: put the record's coordinates or a fixed text into it (reference transforms-converters 2.8).

Owns the settings and the order of insertion. Invariant: schemaless, an inserted field replaces one of the same name.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.errors import ConfigError, DataError
from herdmesh.connect.transforms import definitions
from herdmesh.connect.transforms.base import Code, Transformation


class InsertField(Transformation):
    """`org.apache.kafka.connect.transforms.InsertField`."""

    java_class = "org.apache.kafka.connect.transforms.InsertField"
    purpose = "field insertion"
    null_passes = True
    config_def = definitions.INSERT_FIELD

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._topic = _field_name(settings["topic.field"])
        self._partition = _field_name(settings["partition.field"])
        self._offset = _field_name(settings["offset.field"])
        self._timestamp = _field_name(settings["timestamp.field"])
        self._static = _field_name(settings["static.field"])
        self._static_value = settings["static.value"]
        fields = (self._topic, self._partition, self._offset, self._timestamp, self._static)
        if all(field is None for field in fields):
            raise ConfigError("No field insertion configured", fix="set one of the *.field options")
        if self._static is not None and self._static_value is None:
            message = f"No value specified for static field: {self._static}"
            raise ConfigError.for_value("static.value", None, message, fix="set static.value")

    def emit_map(self, code: Code, name: str) -> None:
        if self._topic is not None:
            code.line(f"{name}[{self._topic!r}] = topic")
        if self._partition is not None:
            code.line("if partition is not None:")
            code.line(f"    {name}[{self._partition!r}] = partition")
        if self._offset is not None:
            if code.source:
                refuse = code.bind(_refuse_source)
                code.line(f"{refuse}()")
            else:
                code.uses.add("offset")
                code.line(f"{name}[{self._offset!r}] = offset")
        if self._timestamp is not None:
            code.uses.add("timestamp")
            code.line("if timestamp is not None:")
            code.line(f"    {name}[{self._timestamp!r}] = timestamp")
        if self._static is not None:
            code.line(f"{name}[{self._static!r}] = {self._static_value!r}")


def _refuse_source() -> None:
    raise DataError(
        "Only SinkRecord supported for [field insertion], found: org.apache.kafka.connect.source.SourceRecord"
    )


def _field_name(setting: str | None) -> str | None:
    """The name without the mark for required (!) or optional (?), which only schemas know."""
    return setting[:-1] if setting and setting[-1] in "!?" else setting
