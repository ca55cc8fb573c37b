"""Cache of a registry's responses, and the choice of the schema that a value is written with.

Owns the rules of `auto.register.schemas`, `use.schema.id`, `use.latest.version` and their strictness, and the caches.
Source of the rules: Confluent's `AbstractKafkaSchemaSerDe` and `AbstractKafkaAvroSerializer`.

Invariant: a cached id or registered schema needs no request, also during an outage of the registry; an id never changes
its meaning. A failure is never cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

from herdmesh.connect.errors import DataError
from herdmesh.connect.registry.client import NewSchema, NotRegistered, Reference, RegisteredSchema, RegistryClient
from herdmesh.connect.registry.settings import RegistrySettings

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Cache of the most recently used entries."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The cached value, else the result of `make`, whose errors it raises."""
        if key in self._items:
            self._items.move_to_end(key)
            return self._items[key]
        made = make()
        self._items[key] = made
        if len(self._items) > self._size:
            self._items.popitem(last=False)
        return made

    def forget(self, key: K) -> None:
        """Remove an entry from the cache."""
        self._items.pop(key, None)


class Schemas:
    """The schemas of one registry for one converter."""

    def __init__(self, client: RegistryClient, settings: RegistrySettings) -> None:
        self.client = client
        self._settings = settings
        size = settings.remembered
        self._by_id = Remembered[tuple[int, str], RegisteredSchema](size)
        self._versions = Remembered[tuple[str, str], int | None](size)
        self._used = Remembered[tuple[Reference, ...], list[tuple[Reference, RegisteredSchema]]](size)
        self._latest = Remembered[str, tuple[float, RegisteredSchema]](size)

    def by_id(self, schema_id: int, subject: str, kind: str) -> RegisteredSchema:
        """The schema of this id. Raises DataError for a schema of another kind."""
        found = self._by_id.get((schema_id, subject), lambda: self.client.schema_by_id(schema_id, subject))
        if found.kind != kind:
            raise DataError(
                f"Schema id {schema_id} (subject '{subject}') is {found.kind}, not {kind}: use the converter for "
                f"{found.kind}"
            )
        return found

    def version_of(self, subject: str, schema: RegisteredSchema) -> int | None:
        """The schema's version under the subject; None when it is not registered there."""

        def ask() -> int | None:
            asked = NewSchema(schema.text, schema.kind, schema.references)
            try:
                return self.client.registered(subject, asked, normalize=self._settings.normalize).version
            except NotRegistered:
                return None

        return self._versions.get((subject, schema.text), ask)

    def used_by(self, references: tuple[Reference, ...]) -> list[tuple[Reference, RegisteredSchema]]:
        """The referenced schemas, each before the schemas that reference it."""
        return self._used.get(references, lambda: self.client.all_references(references)) if references else []

    def to_write(self, subject: str, schema: NewSchema) -> tuple[int, RegisteredSchema | None]:
        """The id to write values of this schema with, and the registered schema if it replaces the given one."""
        settings = self._settings
        if settings.auto_register:
            return self.client.register(subject, schema, normalize=settings.normalize), None
        if settings.schema_id >= 0:
            chosen = self.by_id(settings.schema_id, subject, schema.kind)
            if settings.strict_id and chosen.text != schema.text:
                version = self.version_of(subject, chosen)
                what = f"schema id {settings.schema_id}"
                if version is None:
                    raise DataError(
                        f"{what.capitalize()} of use.schema.id is not registered under subject '{subject}'. Register "
                        "it there, or set id.compatibility.strict=false."
                    )
                self._check(subject, version, schema, what, "id.compatibility.strict")
            return settings.schema_id, chosen
        if not settings.use_latest:
            return self.client.registered(subject, schema, normalize=settings.normalize).id, None
        latest = self.latest(subject)
        if settings.strict_latest and latest.text != schema.text:
            what = f"the latest version {latest.version} of subject '{subject}'"
            self._check(subject, "latest", schema, what, "latest.compatibility.strict")
        return latest.id, latest

    def _check(self, subject: str, version: int | str, schema: NewSchema, what: str, option: str) -> None:
        reasons = self.client.incompatible(subject, version, schema)
        if reasons is not None:
            raise DataError(
                f"Incompatible schema: {what} is not compatible with the schema of the data "
                f"({'; '.join(reasons) or 'no reason given'}). Set {option}=false to disable this check."
            )

    def close(self) -> None:
        """Close connections. Cached values are still served."""
        self.client.close()

    def latest(self, subject: str) -> RegisteredSchema:
        """The latest version, at most as old as `latest.cache.ttl.sec` allows."""

        def ask() -> tuple[float, RegisteredSchema]:
            return monotonic(), self.client.version(subject, "latest")

        learnt_s, found = self._latest.get(subject, ask)
        if 0 <= self._settings.latest_ttl_s < monotonic() - learnt_s:
            self._latest.forget(subject)
            found = self._latest.get(subject, ask)[1]
        return found
