"""Lookup of transformations by the names that a config can use.

Owns the list of transformations and their names. Each has its own module.

Invariant: a config names a transformation by its Java class (`...InsertField$Value`) with or without its package, as in
Connect, and by no other name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from herdmesh.connect.config import advice
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.transforms.base import PartTransformation, Transformation
from herdmesh.connect.transforms.confluent.drop import Drop
from herdmesh.connect.transforms.confluent.extract_topic import ExtractTopic, ExtractTopicFromHeader
from herdmesh.connect.transforms.confluent.filter import ConditionalFilter
from herdmesh.connect.transforms.confluent.tombstone_handler import TombstoneHandler
from herdmesh.connect.transforms.confluent.topic_regex_router import PlainTopicRegexRouter, TopicRegexRouter
from herdmesh.connect.transforms.debezium.by_logical_table_router import ByLogicalTableRouter
from herdmesh.connect.transforms.debezium.event_router import EventRouter
from herdmesh.connect.transforms.debezium.extract_new_record_state import ExtractNewRecordState
from herdmesh.connect.transforms.kafka.cast import Cast
from herdmesh.connect.transforms.kafka.extract_field import ExtractField
from herdmesh.connect.transforms.kafka.filter import Filter
from herdmesh.connect.transforms.kafka.flatten import Flatten
from herdmesh.connect.transforms.kafka.header_from import HeaderFrom
from herdmesh.connect.transforms.kafka.headers import DropHeaders, InsertHeader
from herdmesh.connect.transforms.kafka.hoist_field import HoistField
from herdmesh.connect.transforms.kafka.insert_field import InsertField
from herdmesh.connect.transforms.kafka.mask_field import MaskField
from herdmesh.connect.transforms.kafka.regex_router import RegexRouter
from herdmesh.connect.transforms.kafka.replace_field import ReplaceField
from herdmesh.connect.transforms.kafka.set_schema_metadata import SetSchemaMetadata
from herdmesh.connect.transforms.kafka.timestamp_converter import TimestampConverter
from herdmesh.connect.transforms.kafka.timestamp_router import TimestampRouter
from herdmesh.connect.transforms.kafka.value_to_key import ValueToKey

TRANSFORMATION_CLASSES: tuple[type[Transformation], ...] = (
    ByLogicalTableRouter,
    Cast,
    ConditionalFilter,
    Drop,
    DropHeaders,
    EventRouter,
    ExtractField,
    ExtractNewRecordState,
    ExtractTopic,
    ExtractTopicFromHeader,
    Filter,
    Flatten,
    HeaderFrom,
    HoistField,
    InsertField,
    InsertHeader,
    MaskField,
    PlainTopicRegexRouter,
    RegexRouter,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
    TimestampRouter,
    TombstoneHandler,
    TopicRegexRouter,
    ValueToKey,
)


def _named(cls: type[Transformation]) -> list[tuple[str, Callable[[], Transformation]]]:
    if not issubclass(cls, PartTransformation):
        return [(cls.java_class, cls)]
    return [(f"{cls.java_class}$Key", partial(cls, on_key=True)), (f"{cls.java_class}$Value", cls)]


TRANSFORMATIONS: Mapping[str, Callable[[], Transformation]] = {
    name: make
    for cls in TRANSFORMATION_CLASSES
    for java_class, make in _named(cls)
    for name in (java_class, java_class.rpartition(".")[2])
}
"""Constructor by accepted name (Java class, and short alias without its package)."""


def make_transformation(field: str, name: str) -> Transformation:
    """The transformation that a config names at `field` (`transforms.<alias>.type`), not configured yet.

    Raises:
        ConfigError: the name is unknown; the error says what to write instead.
    """
    found = TRANSFORMATIONS.get(name)
    if found is None:
        raise ConfigError.for_value(field, name, f"Class {name} could not be found.", fix=advice(name, TRANSFORMATIONS))
    return found()
