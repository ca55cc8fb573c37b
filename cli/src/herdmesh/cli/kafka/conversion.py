"""Converters for the records of `herd produce` and `herd consume`: a connector's own, or those that options name.

Owns the choice of the converters, and the decoding of a batch. `herdmesh.cli.transform` runs them, without
transformations.

Invariant: converters get the settings of the config that names them and no others, as in Connect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.cli.kafka.options import ConverterOptions
from herdmesh.cli.transform.chain_file import Config, read_worker, without_references
from herdmesh.cli.transform.options import Direction
from herdmesh.cli.transform.reading import Given
from herdmesh.cli.transform.running import CONVERTERS, Runner, open_runner
from herdmesh.connect.converters import make_converter
from herdmesh.connect.errors import ConnectError
from herdmesh.connect.model import ConnectRecord, Schema

Undecodable = Callable[[ConnectRecord, str], None]

#: Converters of a worker that sets none (docs/reference/service-settings.md).
_WORKERS_OWN: Final[Config] = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"


def open_converters(
    options: ConverterOptions, connector_config: Mapping[str, str] | None, direction: Direction
) -> Runner:
    """The converters that the options name. Raises CommandError.

    Args:
        connector_config: the config of the options' connector.
        direction: SINK = bytes to values, SOURCE = values to bytes.
    """
    config: Config = {name: one for name, one in (connector_config or {}).items() if name.startswith(CONVERTERS)}
    for name, given in zip(CONVERTERS, (options.key, options.value, options.header), strict=True):
        if given is not None:
            config = {key: one for key, one in config.items() if not key.startswith(name)} | {name: given}
    config |= _settings(options.settings)
    if options.connector is None:  # a column without a converter stays as it is
        config.setdefault("key.converter", _BYTES if direction is Direction.SINK else _STRING)
        config.setdefault("value.converter", _BYTES if direction is Direction.SINK else _STRING)
    worker = _WORKERS_OWN if options.worker is None else read_worker(options.worker)
    source = "the converters" if options.connector is None else f"connector {options.connector}"
    config, worker = without_references(source, config, worker)
    return open_runner(source, config, worker, direction)


def decoded(runner: Runner, batch: Sequence[ConnectRecord], report: Undecodable) -> Iterator[ConnectRecord]:
    """The batch with its keys, values and headers decoded, in order. A record that the converters refuse is reported
    and stays bytes.
    """
    ran = runner.run([Given(at, False, record) for at, record in enumerate(batch)])
    failed = {one.line: one for one in ran.failures}
    made = iter(ran.records)
    for at, record in enumerate(batch):
        if at in failed:
            report(record, f"{failed[at].stage}: {failed[at].message}")
            yield record
        else:
            yield next(made)


def _settings(given: Sequence[str]) -> Config:
    found: Config = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.startswith(tuple(f"{converter}." for converter in CONVERTERS)):
            text = f"--converter-config {one}: it is not a setting of a converter"
            fix = "Write KEY=VALUE, such as value.converter.schemas.enable=false."
            raise CommandError("USAGE", text, fix, EXIT_USAGE)
        found[name] = value
    return found


class SchemaReader:
    """Reader of plain JSON under one schema in Connect's JSON form (`schema.content` of JsonConverter, KIP-1054)."""

    def __init__(self, option: str, path: Path) -> None:
        """Raises CommandError when the file has no schema."""
        try:
            content = path.read_text("utf-8")
            settings = {"value.converter": "JsonConverter", "value.converter.schema.content": content}
            self._converter = make_converter("value.converter", settings, role="value")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError("USAGE", f"{option} {path}: cannot be read: {error}", exit_code=EXIT_USAGE) from None
        except ConnectError as error:
            fix = 'Write it as Connect does: {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}.'
            raise CommandError("USAGE", f"{option} {path}: {error}", fix, EXIT_USAGE) from None

    def read(self, value: Any) -> tuple[Schema | None, Any]:
        """The schema and the value under it. Raises ConnectError when the value does not fit."""
        return self._converter.read(None if value is None else json.dumps(value).encode())
