"""Trial of the Kafka client settings of a connector or worker, before any task runs.

Owns finding every setting that would end a run: the run's own functions read the settings and create the clients,
here without a broker. So the trial and the run accept and refuse the same settings. Logins and
encryption, which need files and other systems, are checked in `client_security`.

Invariant: no client created here connects, and each is closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from herdmesh.connect.clients import CLIENTS, ClientSettings, client_settings, is_access
from herdmesh.connect.config import FieldViolation, RawConfig
from herdmesh.connect.errors import ConfigError
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import ClientConfig, RunSpec, TaskKind, sink_settings, source_settings

_POLL_INTERVAL_MAX_MS = "max.poll.interval.ms"
_POLL_INTERVAL_MAX_MS_DEFAULT = 300_000
_FIX = "leave it out, or write a value that it accepts"
_MAX = 50
"""Maximum number of wrong settings found at once."""


def client_violations(
    used: Iterable[str], config: RawConfig, worker: RawConfig, kind: TaskKind
) -> list[FieldViolation]:
    """Every override that would end a run of this kind.

    Args:
        used: the kinds of clients that the connector has (`client_overrides.clients_of`).
        config: of the connector, with references resolved.
        worker: the worker's settings, as a run gets them.
    """
    prefixes = tuple(f"{client}.override." for client in used)
    left = {key: value for key, value in config.items() if value is not None}
    found: list[FieldViolation] = []
    while len(found) < _MAX and any(key.startswith(prefixes) for key in left):
        try:
            _try(prefixes, left, worker, kind)
        except ConfigError as error:
            key = error.field if error.field in left else _java_name(error.field, left, worker)
            if not error.field:
                key = _guilty(prefixes, left, worker, kind)
            if not key.startswith(prefixes):
                return found  # not an override: reported elsewhere
            text = str(error) if key in str(error) else f"{key}: {error}"
            found.append(FieldViolation(key, text, error.fix or _FIX))
            if not _leave_out(key, left):
                return found
        else:
            return found
    return found


def missing_files(used: Iterable[str], config: RawConfig) -> list[FieldViolation]:
    """A warning for each file that an override names and this machine lacks: a run on it would fail. Not an error,
    because runs may be on other machines.
    """
    found: list[FieldViolation] = []
    for key, value in config.items():
        client, is_override, setting = key.partition(".override.")
        if not (is_override and client in used and setting.startswith("ssl.") and setting.endswith(".location")):
            continue
        if value and not os.path.exists(path := str(value)):
            why = f"{key}: there is no file {path} on this worker, so its tasks cannot connect"
            found.append(FieldViolation(key, why, "put it there, under this path on each machine that runs tasks"))
    return found


def _leave_out(key: str, left: dict[str, Any]) -> bool:
    """Remove a wrong setting, to find further ones. If it is wrong because it is missing, remove all login settings of
    its client. False = nothing was removed.
    """
    client = key.partition(".override.")[0] + ".override."
    wrong = [key] if key in left else [one for one in left if one.startswith(client) and is_access(one[len(client) :])]
    for one in wrong:
        del left[one]
    return bool(wrong)


def poll_interval_max_ms(config: RawConfig, worker: RawConfig) -> int:
    """Maximum time of a stuck run. Raises ConfigError."""
    given = client_settings("consumer", worker, config).engine.get(_POLL_INTERVAL_MAX_MS)
    return _POLL_INTERVAL_MAX_MS_DEFAULT if given is None else int(given)


def worker_violations(worker: RawConfig) -> list[FieldViolation]:
    """Every `<client>.*` of a worker's properties with which no client could be created."""
    found: list[FieldViolation] = []
    for client in CLIENTS:
        try:
            given = client_settings(client, worker, {})
        except ConfigError as error:
            found.append(FieldViolation(error.field, str(error), error.fix))
            continue
        base: ClientConfig = {"bootstrap.servers": "", **clients.RECONNECT}
        found += refused(client, given, lambda own, base=base: {**base, **own})
    return found


def refused(
    client: str, given: ClientSettings, build: Callable[[ClientConfig], Mapping[str, Any]]
) -> list[FieldViolation]:
    """The client settings with which it cannot be created, under the properties' full names.

    Args:
        build: returns the client's real settings from settings in librdkafka's terms.
    """
    left, found = _plain(given.config), list[FieldViolation]()
    while left and len(found) < _MAX and (error := _refusal(client, build(left))) is not None:
        name = error.field.removeprefix(f"{client}.override.")
        if name not in left:
            name = next((one for one in left if _refusal(client, build(_without(left, one))) is None), "")
        if not name:
            name = next(iter(left))
        full = given.origins.get(name, name)
        text = str(error).removeprefix(f"{error.field}: ") if error.field else str(error)
        found.append(FieldViolation(full, f"{full}: {text}", _FIX))
        del left[name]
    return found


def _refusal(client: str, config: Mapping[str, Any]) -> ConfigError | None:
    try:
        if client == "consumer":
            clients.close_in_background(clients.made(Consumer, client, {"group.id": "trial", **config}))
        else:
            clients.made(Producer if client == "producer" else AdminClient, client, config)
    except ConfigError as error:
        return error
    return None


def _without(config: ClientConfig, name: str) -> ClientConfig:
    return {key: value for key, value in config.items() if key != name}


def _try(prefixes: tuple[str, ...], config: RawConfig, worker: RawConfig, kind: TaskKind) -> None:
    """Create the clients. Raises ConfigError for the first setting that would end a run."""
    spec = _spec(config, worker, kind)
    if kind is TaskKind.SINK:
        read = sink_settings(spec)
        clients.close_in_background(clients.consumer(spec, read.group, _plain(read.consumer)))
        if "producer.override." in prefixes:
            given = client_settings("producer", worker, config)
            clients.dead_letter_producer(spec, _plain(given.config))
    else:
        read = source_settings(spec)
        fenced = not read.at_least_once
        clients.producer(spec, _plain(read.producer), is_fenced=fenced)
        if "consumer.override." in prefixes:
            given = client_settings("consumer", worker, config)
            clients.close_in_background(clients.consumer(spec, "trial", _plain(given.config)))
    if "admin.override." in prefixes:
        given = client_settings("admin", worker, config)
        clients.admin(spec, _plain(given.config))


def _spec(config: RawConfig, worker: RawConfig, kind: TaskKind) -> RunSpec:
    name = str(config.get("name") or "trial")
    return RunSpec(
        run_id="",
        connector=name,
        task=0,
        task_count=1,
        kind=kind,
        task_class="",
        connector_config={key: None if value is None else str(value) for key, value in config.items()},
        task_config={},
        bootstrap_servers="",
        group_id="trial",
        offset_storage_topic="trial",
        transactional_id=f"trial-{name}",
        worker_config={key: None if value is None else str(value) for key, value in worker.items()},
    )


def _plain(config: Mapping[str, Any]) -> ClientConfig:
    return {name: value for name, value in config.items() if not is_access(name)}


def _guilty(prefixes: tuple[str, ...], config: RawConfig, worker: RawConfig, kind: TaskKind) -> str:
    """The override without which the clients can be created, or else the first."""
    own = [key for key in config if key.startswith(prefixes)]
    for key in own:
        try:
            _try(prefixes, {name: value for name, value in config.items() if name != key}, worker, kind)
        except ConfigError as error:
            if error.field:  # another fault, which this key's fault no longer hides
                return key
        else:
            return key
    return own[0]


def _java_name(field: str, config: RawConfig, worker: RawConfig) -> str:
    """The override behind librdkafka's name under a client's prefix."""
    client, middle, name = field.partition(".override.")
    if not middle:
        return field
    for key, value in config.items():
        own = key.removeprefix(f"{client}.override.")
        if own != key and value is not None:
            alone = {key: value, "name": "trial"}
            try:
                if name in client_settings(client, {}, alone).config:
                    return key
            except ConfigError:
                continue
    return field
