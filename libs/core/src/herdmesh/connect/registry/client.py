"""HTTP client for the REST API of a Confluent-compatible schema registry.

Owns requests, several addresses, bounded retries, authentication and the meaning of error responses. Caches nothing
(`schemas` does). Source of paths, responses and error codes: the registry's API reference ("Schema Registry API").

Invariant: whatever the registry or the network does, a call ends within its timeouts and retries, with a response or
with an error of `herdmesh.connect.errors` that names the registry, the subject or the id, and the next step.

    RetriableError   unreachable, overloaded or broken: the same record may work later
    ConfigError      401, 403: wrong or no credentials
    DataError        any other refusal: unknown id or subject, incompatible schema
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from herdmesh.connect.errors import ConfigError, ConnectError, DataError, RetriableError, UnreachableError
from herdmesh.connect.registry.retry_after import retry_after_s
from herdmesh.connect.registry.settings import RegistrySettings
from herdmesh.connect.spi import waits

if TYPE_CHECKING:
    import httpx

_CONTENT = "application/vnd.schemaregistry.v1+json"
_PASSING = frozenset((408, 429, 500, 502, 503, 504))
_UNKNOWN_SUBJECT, _UNKNOWN_SCHEMA = 40401, 40403


class Reference(msgspec.Struct, frozen=True):
    """Schema that another one references: its name there, and the subject and version it is registered under."""

    name: str
    subject: str
    version: int


class RegisteredSchema(msgspec.Struct, frozen=True, rename={"kind": "schemaType", "text": "schema"}):
    """A schema as the registry returns it; `version` and `subject` are set when it was requested by subject."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()
    id: int = 0
    version: int | None = None
    subject: str | None = None


class _Id(msgspec.Struct):
    id: int


class _Compatible(msgspec.Struct):
    is_compatible: bool
    messages: list[str] = []


class _Refusal(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class NotRegistered(DataError):
    """The registry does not have the subject, or does not have this schema under the subject."""


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A schema to register or look up: its text, kind (`AVRO`, `PROTOBUF`, `JSON`) and references."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()

    def body(self) -> bytes:
        """The request body. An Avro schema is sent without a type, as old registries require."""
        asked: dict[str, Any] = {"schema": self.text}
        if self.kind != "AVRO":
            asked["schemaType"] = self.kind
        if self.references:
            asked["references"] = list(self.references)
        return msgspec.json.encode(asked)


class RegistryClient:
    """One registry, under one or several addresses. Blocking; one thread makes requests, and any thread may close it.

    Nothing is opened, and no HTTP client is imported, before the first request, so that validating a config needs
    neither.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._at = 0  # index of the address that last responded
        self._stop = threading.Event()

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        from herdmesh.connect.registry import tls

        settings = self._settings
        headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if settings.bearer_token:
            headers["Authorization"] = f"Bearer {settings.bearer_token}"
        secured = any(url.startswith("https:") for url in settings.urls)  # loading authorities takes 50 ms
        return httpx.Client(
            auth=settings.user,
            headers=headers,
            verify=tls.context(settings.tls) if secured else False,
            proxy=settings.proxy or None,
            trust_env=False,  # the config alone decides, as with Java's client
            timeout=httpx.Timeout(settings.read_timeout_ms / 1000, connect=settings.connect_timeout_ms / 1000),
        )

    def close(self) -> None:
        """Close connections, and cancel the backoff before a next attempt. A later request is refused."""
        self._stop.set()
        if "_http" in self.__dict__:
            self._http.close()

    def schema_by_id(self, schema_id: int, subject: str) -> RegisteredSchema:
        """GET /schemas/ids/{id}. `subject` selects the context, and is named in errors."""
        path = f"/schemas/ids/{schema_id}?subject={quote(subject, safe='')}"
        return self._ask("GET", path, None, f"schema id {schema_id}", RegisteredSchema)

    def version(self, subject: str, version: int | str) -> RegisteredSchema:
        """GET /subjects/{subject}/versions/{version}, `latest` too."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        return self._ask("GET", path, None, f"subject '{subject}' version {version}", RegisteredSchema)

    def registered(self, subject: str, schema: NewSchema, *, normalize: bool) -> RegisteredSchema:
        """POST /subjects/{subject}: the schema's id and version. Raises NotRegistered when it is not there."""
        path = f"/subjects/{quote(subject, safe='')}?normalize={_flag(normalize)}&deleted=false"
        return self._ask("POST", path, schema.body(), f"subject '{subject}'", RegisteredSchema)

    def register(self, subject: str, schema: NewSchema, *, normalize: bool) -> int:
        """POST /subjects/{subject}/versions: the schema's id, new or not."""
        path = f"/subjects/{quote(subject, safe='')}/versions?normalize={_flag(normalize)}"
        return self._ask("POST", path, schema.body(), f"subject '{subject}'", _Id).id

    def incompatible(self, subject: str, version: int | str, schema: NewSchema) -> list[str] | None:
        """POST /compatibility/subjects/{subject}/versions/{version}: None when it is compatible, else the reasons."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/{version}?verbose=true"
        said = self._ask("POST", path, schema.body(), f"subject '{subject}'", _Compatible)
        return None if said.is_compatible else said.messages

    def all_references(self, references: Sequence[Reference]) -> list[tuple[Reference, RegisteredSchema]]:
        """The referenced schemas and those that they reference, each once, and each before the schemas that reference
        it.
        """
        found: dict[str, tuple[Reference, RegisteredSchema]] = {}

        def gather(some: Sequence[Reference], above: tuple[str, ...]) -> None:
            for one in some:
                if one.name in found or one.name in above:
                    continue
                used = self.version(one.subject, one.version)
                gather(used.references, (*above, one.name))
                found[one.name] = one, used

        gather(references, ())
        return list(found.values())

    @property
    def _place(self) -> str:
        """Name of the registry for a wait reason."""
        return f"schema registry {', '.join(self._settings.urls)}"

    def _ask(self, method: str, path: str, body: bytes | None, what: str, wanted: type[Any]) -> Any:
        settings = self._settings
        wait_ms = settings.wait_ms
        failure: RetriableError | None = None
        with waits.on(self._place, what), waits.Standing() as standing:
            standing.goes_on(self._place, what)
            for attempt in range(settings.retries + 1):
                if failure is not None and attempt:
                    asked_ms = (failure.next_try_s or 0) * 1000
                    pause_s = min(max(wait_ms, asked_ms), settings.max_wait_ms) / 1000
                    standing.goes_on(self._place, str(failure), next_try_s=pause_s)
                    self._stop.wait(pause_s)
                    wait_ms *= 2
                for _ in settings.urls:
                    url = settings.urls[self._at]
                    try:
                        return self._once(method, url, path, body, what, wanted)
                    except RetriableError as error:
                        failure = error
                        standing.goes_on(self._place, str(error), tried=True)
                        self._at = (self._at + 1) % len(settings.urls)
                if self._stop.is_set():
                    break
        assert failure is not None
        failure.waits_for = self._place
        raise failure

    def _once(self, method: str, url: str, path: str, body: bytes | None, what: str, wanted: type[Any]) -> Any:
        http = self._http
        import httpx  # installed: `_http` has imported it

        try:
            answer = http.request(method, url + path, content=body)
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:  # RuntimeError: the client is closed
            raise UnreachableError(
                f"Schema registry {url} cannot be reached ({what}): {error or type(error).__name__}. "
                "Check schema.registry.url and that the registry runs."
            ) from error
        if answer.is_success:
            try:
                return msgspec.json.decode(answer.content, type=wanted)
            except msgspec.MsgspecError as error:
                raise RetriableError(
                    f"Schema registry {url} did not return a registry's response ({what}): {error}. Check "
                    "schema.registry.url."
                ) from error
        refused = _refused(answer.status_code, answer.content, url, what)
        if isinstance(refused, RetriableError):
            refused.next_try_s = retry_after_s(answer.headers.get("Retry-After"), time.time())
        raise refused


def _refused(status: int, content: bytes, url: str, what: str) -> ConnectError:
    try:
        said = msgspec.json.decode(content, type=_Refusal)
    except msgspec.MsgspecError:
        said = _Refusal()
    where = f"Schema registry {url}, {what}: "
    why = f"{said.message or 'no reason given'} (HTTP {status}, error {said.error_code or status})"
    if status in (401, 403):
        return ConfigError(
            f"{where}{'not authenticated' if status == 401 else 'not allowed'}: {why}",
            field="basic.auth.user.info",
            fix="set basic.auth.credentials.source=USER_INFO and basic.auth.user.info=user:password of a user with "
            "that permission",
        )
    if status in _PASSING:
        return RetriableError(f"{where}{why}. It may succeed later.")
    if status == 404:
        fix = "Check schema.registry.url: is this the registry the data was written with?"
        if said.error_code in (_UNKNOWN_SUBJECT, _UNKNOWN_SCHEMA):
            fix = "Register the schema, or set auto.register.schemas=true."
            return NotRegistered(f"{where}not registered: {why}. {fix}")
        return DataError(f"{where}not found: {why}. {fix}")
    if status == 409:
        return DataError(
            f"{where}the schema is not compatible with what is registered: {why}. Change the data's schema, or the "
            "subject's compatibility."
        )
    return DataError(f"{where}refused: {why}")


def _flag(value: bool) -> str:
    return "true" if value else "false"
