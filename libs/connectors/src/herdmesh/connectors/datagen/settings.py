"""The settings of `Datagen`, read from its config: Confluent's keys, and the schema that they name.

Owns the keys and reading the schema's file. `avro_schema` compiles the schema to generators.

Invariant: exactly one key names the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from herdmesh.connectors.datagen.quickstarts import QUICKSTARTS
from herdmesh.sdk import REQUIRED, Config, ConfigDef, ConfigError, ConfigKey, Importance, Type
from herdmesh.sdk.validators import at_least, non_empty_string

TOPIC, INTERVAL_MS, ITERATIONS = "kafka.topic", "max.interval", "iterations"
SCHEMA, SCHEMA_FILE, QUICKSTART = "schema.string", "schema.filename", "quickstart"
KEY_FIELD, SEED, TIMEOUT_MS = "schema.keyfield", "random.seed", "generate.timeout"
TASK_ID = "task.id"
"""Key of a task's config, as in Java, and of its source partition."""
ITERATION = "current.iteration"
"""Key of a source offset: the number of the next record."""
_SOURCES = (SCHEMA, SCHEMA_FILE, QUICKSTART)
_SCHEMA_BYTES_MAX = 4_000_000
_HIGH, _LOW = Importance.HIGH, Importance.LOW

KEYS = ConfigDef(
    ConfigKey(TOPIC, Type.STRING, REQUIRED, _HIGH, "Topic to write to", non_empty_string()),
    ConfigKey(INTERVAL_MS, Type.LONG, 500, _HIGH, "Max interval between messages (ms)", at_least(0)),
    ConfigKey(ITERATIONS, Type.INT, -1, _HIGH,
              "Number of messages to send from each task, or less than 1 for unlimited"),
    ConfigKey(SCHEMA, Type.STRING, "", _HIGH, "The literal JSON-encoded Avro schema to use"),
    ConfigKey(SCHEMA_FILE, Type.STRING, "", _HIGH, "Filename of schema to use"),
    ConfigKey(KEY_FIELD, Type.STRING, "", _HIGH, "Name of field to use as the message key"),
    ConfigKey(QUICKSTART, Type.STRING, "", _HIGH, "Name of quickstart to use"),
    ConfigKey(SEED, Type.LONG, None, _LOW,
              "Numeric seed for generating random data. Two connectors started with the same seed will "
              "deterministically produce the same data. Each task will generate different data than the other tasks in "
              "the same connector. If unset, the seed is derived from the connector's name."),
    ConfigKey(TIMEOUT_MS, Type.LONG, None, _LOW, "Timeout in milliseconds for making a record."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DatagenSettings:
    """The parsed config."""

    topic: str
    interval_ms: int
    iterations: int
    """Number of records of each task; below 1 = no limit."""
    schema: str
    """Avro schema, as JSON."""
    source: str
    """The key that named the schema."""
    key_field: str
    """Field of the record key; "" = records have no key."""
    seed: int | None


def settings_of(config: Config) -> DatagenSettings:
    """Read the config and the schema's file. Raises ConfigError whose field is the key."""
    values = KEYS.parse(config)
    named = [key for key in _SOURCES if values[key]]
    if len(named) != 1:
        field = named[1] if named else SCHEMA
        raise ConfigError(
            f"Must set exactly one of {', '.join(_SOURCES)}", field=field, fix=f"write {QUICKSTART}=users"
        )
    source, key_field, schema = named[0], values[KEY_FIELD] or "", values[SCHEMA]
    if source == QUICKSTART:
        found = QUICKSTARTS.get(values[QUICKSTART].lower())
        if found is None:
            known = ", ".join(QUICKSTARTS)
            raise ConfigError.for_value(
                QUICKSTART, values[QUICKSTART], f"must be one out of {known}", fix=f"write one of {known}, or a schema"
            )
        schema, key_field = found.schema, key_field or found.key
    elif source == SCHEMA_FILE:
        schema = _read(Path(values[SCHEMA_FILE]))
    return DatagenSettings(
        values[TOPIC], values[INTERVAL_MS], values[ITERATIONS], schema, source, key_field, values[SEED]
    )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_SCHEMA_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        fix = "name a file that every worker can read, or write the schema to schema.string"
        raise ConfigError(f"{SCHEMA_FILE}: {path} cannot be read: {why}", field=SCHEMA_FILE, fix=fix) from error
    if len(data) > _SCHEMA_BYTES_MAX:
        raise ConfigError(f"{SCHEMA_FILE}: {path} has more than {_SCHEMA_BYTES_MAX} bytes", field=SCHEMA_FILE)
    return text


def seed_of(settings: DatagenSettings, connector: str) -> int:
    """Return the configured seed, or one derived from the connector's name."""
    if settings.seed is not None:
        return settings.seed
    return int.from_bytes(blake2b(connector.encode("utf-8", "surrogatepass"), digest_size=6).digest(), "big")
