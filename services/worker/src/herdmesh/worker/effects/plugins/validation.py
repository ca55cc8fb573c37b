"""Validation of a connector's config with the plugins of this worker: Connect's result, and settings that this release
does not support.

Owns the message. `herdmesh.connect.validation.connector_config` (Connect's own layer, exact) and
`herdmesh.connect.validation.unsupported_settings` (on top of it) find the errors. Calls authors' code, so call it in a
thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import structlog

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.clients import clients_of, override_warnings, policy_of
from herdmesh.connect.config import (
    REQUIRED,
    ConfigKey,
    ConfigValue,
    FieldViolation,
    closest,
    redacted,
    secrets_of_one_answer,
    text_of,
    without_url_passwords,
)
from herdmesh.connect.config_providers import ConfigProviders, has_reference
from herdmesh.connect.errors import ConfigError
from herdmesh.connect.plugins import PLUGIN_VERSION, PluginRegistry
from herdmesh.connect.spi import Connector, PluginDescriptor, PluginKind, checked_list
from herdmesh.connect.validation import (
    COMMON,
    HERDMESH,
    SINK,
    SOURCE,
    ValidatedField,
    Validation,
    WorkerFacts,
    fields_of_plugin,
    refusals,
    unknown,
    unread_keys,
    validate_connector,
    workers_spelling,
)
from herdmesh.engine.librdkafka import client_violations, missing_files
from herdmesh.engine.runtime import Properties, TaskFailed, TaskKind, classify

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

_OF_ALL_CONNECTORS = frozenset({*COMMON.keys, *SINK.keys, *SOURCE.keys, *HERDMESH.keys})
_READ_BY_HERDER = ("name", "connector.class", "connector.plugin.version", "tasks.max", "tasks.max.enforce")
_READ_BY_HERDER_PREFIX = "herdmesh.restart."


def validate(
    config: Properties,
    plugins: PluginRegistry,
    worker: Properties,
    providers: ConfigProviders,
    *,
    verdict_only: bool = False,
) -> worker_service_pb2.ConfigValidation:
    """All errors of the config (`_validation`). Secrets of the config are redacted in the response and in the log lines
    of this thread, and not kept: a caller who may validate must not control what other texts of this process redact.
    With `verdict_only`, fields without an error are left out: a third of the time, and nearly all of the message.

    Raises TaskFailed with the text, secrets redacted, of any error of the author's code other than ConfigError.
    """
    with secrets_of_one_answer():
        try:
            return _validation(config, plugins, worker, providers, verdict_only=verdict_only)
        except Exception as error:  # noqa: BLE001 - an author's code may raise anything
            _log.exception("validation_failed", connector=config.get("name"))
            message, _, found = classify(error)
            raise TaskFailed(message, found) from None


def _validation(
    config: Properties,
    plugins: PluginRegistry,
    worker: Properties,
    providers: ConfigProviders,
    *,
    verdict_only: bool,
) -> worker_service_pb2.ConfigValidation:
    """All errors of the config, by key. `worker` has the settings that the worker adds, under Connect's names.

    References are resolved first; the response shows them unresolved, and no text of it has a secret. Of a URL with a
    password, the response shows all but the password.

    Raises any error of the author's `validate` other than ConfigError.

    Our own keys follow Connect's. Where Connect gives an error instead of a result (no class, an unknown one, a client
    option that is no number), the response has the common keys of connectors, with that error at its key.
    """
    raw, for_the_herder = config, _for_the_herder(config)
    try:
        config = providers.resolve(config).config
        result = validate_connector(config, plugins, worker_facts(worker, plugins))
        refused = [*for_the_herder, *refusals(config, _plugin(config, plugins), worker, plugins.authored)]
        refused += _in_two_folders(config, plugins, worker)
        if result.kind is not None:
            used, kind = clients_of(result.kind, config, exactly_once=True), result.kind
            refused += client_violations(
                used, config, worker, TaskKind.SINK if kind is PluginKind.SINK else TaskKind.SOURCE
            )
    except ConfigError as error:
        result = _without_plugin(config)
        refused = [*for_the_herder, FieldViolation(error.field, str(error), error.fix)]
        refused += _other_overrides(error.field, config, plugins, worker)
        for one in result.fields:
            if one.name == error.field:
                result.error_count -= len(one.value.problems)
                one.value.problems.clear()  # replaced by Connect's text
    ours = HERDMESH.validate(config).values()
    shown = [ValidatedField(one.name, HERDMESH.keys[one.name], ConfigValue(one.name, one.value)) for one in ours]
    result.add(HERDMESH.groups, shown, each_message=True)
    _refuse(result, refused, config)
    message = _message(result, verdict_only=verdict_only)
    message.class_name = raw.get("connector.class") or ""
    if result.kind is not None:
        clients = clients_of(result.kind, config, exactly_once=True)
        wrong = {one.name for one in message.fields if one.errors}
        plugin = _plugin(config, plugins)
        warned = [*override_warnings(clients, config, worker), *missing_files(clients, config)]
        warned += _connectors_warnings(plugin, config, plugins, result.kind, is_valid=not result.error_count)
        warned = [one for one in warned if one.field not in wrong]
        for one in warned:
            message.warnings.add(name=one.field, message=redacted(one.message), fix=redacted(one.fix))
    for shown_field in message.fields:
        if has_reference(written := raw.get(shown_field.name)):
            shown_field.value = without_url_passwords(written or "")
    return message


def _other_overrides(
    found: str, config: Properties, plugins: PluginRegistry, worker: Properties
) -> list[FieldViolation]:
    """Errors of client settings other than the first, at which Connect stops: all are reported at once."""
    if ".override." not in found:
        return []
    left = {key: value for key, value in config.items() if key != found}
    try:
        kind = PluginKind(_plugin(left, plugins).kind.value)
        used = clients_of(kind, left, exactly_once=True)
        return client_violations(used, left, worker, TaskKind.SINK if kind is PluginKind.SINK else TaskKind.SOURCE)
    except ConfigError:
        return []


def _connectors_warnings(
    plugin: PluginDescriptor, config: Properties, plugins: PluginRegistry, kind: PluginKind, *, is_valid: bool
) -> list[FieldViolation]:
    """Warnings about settings without effect, of the connector and of the framework."""
    connector = plugin.load()
    own = plugin.connector.config_def().keys
    judges_all = type(connector).warnings is not Connector.warnings
    try:
        said = {one.field: one for one in checked_list("warnings", connector.warnings(config), FieldViolation)}
    except ConfigError:  # its `warnings` reads an incomplete config
        if is_valid:
            raise
        said = {one.field: one for one in _misspelt(config, own)} if judges_all else {}
    for key in config:
        if key not in own and (key in said or not judges_all):
            said |= {one.field: one for one in workers_spelling(key, kind)}
    unread = unread_keys(config, kind, own, lambda name: plugins.class_named(plugins.full_name(name) or name))
    return list((said | {one.field: one for one in unread if one.field not in said}).values())


def _misspelt(config: Properties, own: Collection[str]) -> Iterator[FieldViolation]:
    """Warnings about keys that look like one of the connector's: told beside the errors that keep the connector from
    judging its keys, so that nobody learns of them only once those are corrected.
    """
    for key in config:
        if key not in own and key not in _OF_ALL_CONNECTORS and closest(key, own):
            yield unknown(key, "the connector has no such setting", own)


def _in_two_folders(config: Properties, plugins: PluginRegistry, worker: Properties) -> list[FieldViolation]:
    try:
        plugins.environment(config, worker)
    except ConfigError as error:
        return [FieldViolation(error.field, str(error), error.fix)]
    return []


def _plugin(config: Properties, plugins: PluginRegistry) -> PluginDescriptor:
    """The connector that a validated config names; its latest version if the requested one is missing, which is already
    reported at its key.
    """
    name = plugins.serving(config["connector.class"] or "", config)
    try:
        return plugins.find(name, config.get(PLUGIN_VERSION))
    except ConfigError:
        return plugins.find(name)


def worker_facts(worker: Properties, plugins: PluginRegistry) -> WorkerFacts:
    """The input of Connect's validation that comes from a worker's properties. Raises ConfigError for an unknown
    policy.
    """
    defaults = WorkerFacts()
    converters = {name: worker.get(name) or default for name, default in defaults.converters.items()}
    return WorkerFacts(
        {name: plugins.full_name(written) or written for name, written in converters.items()},
        worker.get("group.id") or defaults.group_id,
        exactly_once="offset.storage.file.filename"
        not in worker,  # the offsets file is written after the transaction, not in it
        overrides=policy_of(worker),
    )


def describe(class_name: str, plugins: PluginRegistry) -> list[worker_service_pb2.ConfigField]:
    """The definition of a plugin of any kind, without values.

    Raises ConfigError when there is no such plugin (`herdmesh.connect.validation.plugin_fields`)."""
    return [_definition(key, key.name) for key in fields_of_plugin(class_name, plugins)]


def _for_the_herder(config: Properties) -> list[FieldViolation]:
    """Errors for references in keys that the herder reads: only workers resolve references."""
    return [
        FieldViolation(name, f"{name}: the herder reads this key and cannot resolve a reference",
                       "write the value itself")
        for name, value in config.items()
        if has_reference(value) and (name in _READ_BY_HERDER or name.startswith(_READ_BY_HERDER_PREFIX))
    ]  # fmt: skip


def _without_plugin(config: Properties) -> Validation:
    result = Validation(config.get("connector.class") or "")
    values = COMMON.validate(config)
    fields = [ValidatedField(name, COMMON.keys[name], value) for name, value in values.items()]
    result.add(COMMON.groups, fields, each_message=True)
    return result


def _refuse(result: Validation, refused: Iterable[FieldViolation], config: Properties) -> None:
    """Add the refusals at their keys, and an entry for a key without definition. One message per key is enough: a key
    with an error of Connect gets none of ours.
    """
    wrong = {one.name for one in result.fields if one.value.problems}
    for violation in refused:
        if violation.field in wrong:
            continue
        found = result.field_named(violation.field)
        if found is None:
            found = ValidatedField(violation.field, None, ConfigValue(violation.field, config.get(violation.field)))
            result.fields.append(found)
        found.value.add(violation.message, violation.fix)
        result.error_count += 1


def _message(result: Validation, *, verdict_only: bool) -> worker_service_pb2.ConfigValidation:
    return worker_service_pb2.ConfigValidation(
        class_name=result.name,
        error_count=result.error_count,
        groups=result.groups,
        connector_type=_type(result.kind),
        fields=[_field(one) for one in result.fields if one.value.problems or not verdict_only],
    )


def _type(kind: PluginKind | None) -> connector_pb2.ConnectorType.ValueType:
    if kind is None:
        return connector_pb2.CONNECTOR_TYPE_UNSPECIFIED
    return connector_pb2.CONNECTOR_TYPE_SINK if kind is PluginKind.SINK else connector_pb2.CONNECTOR_TYPE_SOURCE


def _field(one: ValidatedField) -> worker_service_pb2.ConfigField:
    message = worker_service_pb2.ConfigField(name=one.name) if one.key is None else _definition(one.key, one.name)
    kind = None if one.key is None else one.key.type
    value = text_of(one.value.value, kind)
    if value is not None:
        message.value = without_url_passwords(value)
    message.recommended_values.extend(redacted(text_of(offered, kind) or "") for offered in one.value.recommended)
    for problem in one.value.problems:
        message.errors.append(redacted(problem.message))
        message.fixes.append(redacted(problem.fix))
    message.visible = one.value.visible
    return message


def _definition(key: ConfigKey, name: str) -> worker_service_pb2.ConfigField:
    return worker_service_pb2.ConfigField(
        name=name,
        type=key.type.name,
        required=key.required,
        default_value=None if key.default is REQUIRED else text_of(key.default, key.type),
        importance=key.importance.name,
        documentation=key.doc,
        group=key.group or "",
        width=key.width,
        display_name=key.display_name or key.name,
        dependents=key.dependents,
        order=key.order,
        visible=True,
    )
