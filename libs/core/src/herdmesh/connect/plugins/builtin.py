"""Built-in plugin classes: the converters, transformations and predicates that a connector's config can name.

Owns the list, with names and definitions as in Connect 4.3.1, abstract classes included; also the converters with a
schema registry, Debezium's and Confluent's transformations, and the installed plugins of authors.
`validation.unsupported_settings` decides which of Connect's classes this release runs. Imported where configs are
validated, not where records are processed.

Invariant: a concrete class of Connect's has the definition that its Java class declares (golden configdef vectors).
"""

from __future__ import annotations

from collections.abc import Iterator

from herdmesh.connect.config import ConfigDef, LeftOut
from herdmesh.connect.converters import definitions as converters
from herdmesh.connect.spi import (
    AuthoredPlugin,
    PluginClass,
    PluginImports,
    PluginKind,
    RecordPredicate,
    RecordTransformation,
    entries,
)
from herdmesh.connect.transforms import TRANSFORMATION_CLASSES, TRANSFORMATIONS, PartTransformation, predicates
from herdmesh.connect.transforms.kafka import definitions as transforms

DEBEZIUM_VERSION = "3.6.1.Final"
"""Version of Debezium's transformations."""
UNDEFINED_VERSION = "undefined"
"""Connect's version of classes without one; Confluent's transformations are built from their documentation."""
REGISTERED_VERSION = "8.5.0"
"""The release of Confluent's converters that the converters with a schema registry reproduce."""


def builtin_classes() -> list[PluginClass]:
    """All of Connect's own classes, in no particular order."""
    return [*_transformations(), *_predicates(), *_converters(), *_abstract()]


def third_party_classes() -> list[PluginClass]:
    """The classes that are not Connect's own and run here: the converters with a schema registry, and the
    transformations of Debezium and Confluent."""
    registered = [
        PluginClass(name, _BOTH, definition, _short(name), REGISTERED_VERSION)
        for name, definition in converters.REGISTERED.items()
    ]
    return [*registered, *_third_party_transformations()]


def installed_classes(left_out: LeftOut | None = None) -> list[PluginClass]:
    """The authors' transformations, predicates and converters that are installed here. Takes `left_out` and raises
    errors as `authored.entries`.
    """
    return [authored_class(cls, version) for cls, version in entries(left_out)]


def authored_class(cls: type[AuthoredPlugin], version: str, imports: PluginImports | None = None) -> PluginClass:
    """An author's class in the form that validation reads."""
    kinds = _BOTH
    if issubclass(cls, RecordTransformation):
        kinds = (PluginKind.TRANSFORMATION,)
    elif issubclass(cls, RecordPredicate):
        kinds = (PluginKind.PREDICATE,)
    definition, aliases = cls.config_def(), tuple(cls.aliases)
    return PluginClass(cls.class_name, kinds, definition, aliases, version, author=cls, imports=imports)


_PACKAGE = "org.apache.kafka.connect."
_BOTH = (PluginKind.CONVERTER, PluginKind.HEADER_CONVERTER)


def _transformations() -> Iterator[PluginClass]:
    kinds = (PluginKind.TRANSFORMATION,)
    for name, definition in transforms.DEFINITIONS.items():
        if name in transforms.WHOLE_RECORD:
            yield PluginClass(name, kinds, definition, (_simple(name),))
            continue
        parts = tuple(f"{name}${part}" for part in ("Key", "Value"))
        yield PluginClass(name, kinds, definition, abstract=True, nested=parts)
        for part in parts:
            yield PluginClass(part, kinds, definition)


def _third_party_transformations() -> Iterator[PluginClass]:
    kinds = (PluginKind.TRANSFORMATION,)
    for cls in TRANSFORMATION_CLASSES:
        name = cls.java_class
        if name.startswith(_PACKAGE):
            continue
        version = DEBEZIUM_VERSION if name.startswith("io.debezium.") else UNDEFINED_VERSION
        if issubclass(cls, PartTransformation):
            parts = tuple(f"{name}${part}" for part in ("Key", "Value"))
            yield PluginClass(name, kinds, cls.config_def, version=version, abstract=True, nested=parts)
            for part in parts:
                yield PluginClass(part, kinds, cls.config_def, (_simple(part),), version)
        else:
            aliases = (_simple(name),) if TRANSFORMATIONS[_simple(name)] is cls else ()
            yield PluginClass(name, kinds, cls.config_def, aliases, version)


def _predicates() -> Iterator[PluginClass]:
    for name, definition in predicates.DEFINITIONS.items():
        yield PluginClass(name, (PluginKind.PREDICATE,), definition, (_simple(name),))


def _converters() -> Iterator[PluginClass]:
    for name, definition in converters.DEFINITIONS.items():
        yield PluginClass(name, _BOTH, definition, _short(name))
    simple = _simple(converters.SIMPLE_HEADER_CONVERTER)
    yield PluginClass(
        converters.SIMPLE_HEADER_CONVERTER,
        (PluginKind.HEADER_CONVERTER,),
        ConfigDef(),
        (simple.removesuffix("HeaderConverter"), simple),
    )


def _abstract() -> Iterator[PluginClass]:
    interfaces = {
        "transforms.Transformation": PluginKind.TRANSFORMATION,
        "transforms.predicates.Predicate": PluginKind.PREDICATE,
        "storage.Converter": PluginKind.CONVERTER,
        "storage.HeaderConverter": PluginKind.HEADER_CONVERTER,
    }
    for name, kind in interfaces.items():
        yield PluginClass(_PACKAGE + name, (kind,), ConfigDef(), abstract=True, interface=True)
    yield PluginClass(_PACKAGE + "converters.NumberConverter", _BOTH, ConfigDef(), abstract=True)


def _short(name: str) -> tuple[str, ...]:
    simple = _simple(name)
    return simple.removesuffix("Converter"), simple


def _simple(name: str) -> str:
    return name.rpartition(".")[2]
