"""Process of a plugin: `python -m herdmesh.worker.plugin_process <descriptor> <imports>`, started by a worker.

Owns the started connectors of one plugin folder, and calls the author's code, except tasks. Each call has a thread of
its own, so a call that does not return delays no other. Invariants: one answer per call, also when the code raises; the
process ends when the worker's end of the connection closes.
"""

from __future__ import annotations

import itertools
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from herdmesh.connect.config import (
    ConfigKey,
    FieldViolation,
    escaped_within,
    hide_in_output,
    keep_secret,
    loaded_entry,
    secrets_of_one_answer,
)
from herdmesh.connect.errors import ConfigError, error_text
from herdmesh.connect.plugins import ENTRY_POINT_GROUP, plugin_imports
from herdmesh.connect.spi import (
    AuthoredPlugin,
    Connector,
    ConnectorContext,
    OffsetMap,
    PluginImports,
    RecordConverter,
    RecordPredicate,
    RecordTransformation,
    SinkConnector,
    SourceConnector,
    Wait,
    Waits,
    checked_agreement,
    checked_answer,
    checked_class,
    checked_definition,
    checked_list,
    checked_places,
    checked_task_class,
    checked_task_configs,
    entered,
)
from herdmesh.engine.runtime import message_of
from herdmesh.rpc.monitoring.resource import name_process
from herdmesh.rpc.process import configure_logging, log_identity
from herdmesh.worker.plugin_messages import (
    Answer,
    AuthoredDescription,
    Call,
    CallFailure,
    CommittedOffsets,
    ConnectorDescription,
    KeyDescription,
    OffsetsWanted,
    Raised,
    TasksOutdated,
    WaitChanged,
    author_text,
    failure_of,
    raised,
)
from herdmesh.worker.plugin_requests import FirstError, PacedRequests

_ToWorker = Answer | TasksOutdated | Raised | OffsetsWanted | WaitChanged
_LOOK_S = 1.0
"""Interval between checks of the waits of instances."""


class PluginConnectors:
    """The plugin's connector classes and its started instances."""

    def __init__(self, say: Callable[[_ToWorker], None], broken: CallFailure | None = None) -> None:
        """`broken`: why nothing can be imported from the folder; it is the answer to every call."""
        self._send = say
        self._broken = broken
        self._started: dict[str, Connector] = {}
        #: waits of the instances that run or are being started.
        self._waits: dict[str, Waits] = {}
        self._sent_waits: dict[str, Wait] = {}
        self._numbers = itertools.count(1)
        self._offset_requests: dict[int, queue.SimpleQueue[CommittedOffsets]] = {}

    def execute(self, call: Call) -> None:
        """Execute the call and send its result."""
        value: Any = None
        failure = self._broken
        if failure is not None:
            self._send(Answer(number=call.number, failure=failure))
            return
        try:
            with secrets_of_one_answer():
                keep_secret(call.secrets)
                value = self._value(call)
        except BaseException as error:  # noqa: BLE001 - an author's code may raise anything, such as SystemExit
            failure = _failure_of(error)
        self._send(Answer(number=call.number, value=value, failure=failure))

    def _value(self, call: Call) -> Any:
        loaded = loaded_entry(metadata.EntryPoint("", call.entry, ENTRY_POINT_GROUP))
        if isinstance(loaded, type) and issubclass(loaded, AuthoredPlugin):
            return _call_authored(loaded, call)
        cls = _class(loaded, call.entry)
        arguments = call.arguments
        if call.what in _RULES:
            return _rule(cls, call.what, *arguments)
        match call.what:
            case "describe":
                return _described(cls, *arguments)
            case "start":
                return self._start(cls, call.instance, *arguments)
            case "stop":
                return self._stop(call.instance)
            case _ if call.instance:
                with entered(self._waits[call.instance]):
                    return call_method(self._started[call.instance], call.what, arguments)
            case _:
                return call_method(cls(), call.what, arguments)

    def look_at_waits(self) -> None:
        """Send the beginning, change and end of waits of instances."""
        for instance, waits in list(self._waits.items()):
            wait = waits.shown()
            if wait == self._sent_waits.get(instance):
                continue
            if wait is None:
                del self._sent_waits[instance]
                self._send(WaitChanged(instance=instance))
            else:
                self._sent_waits[instance] = wait
                self._send(WaitChanged(instance=instance, **asdict(wait)))

    def _stop(self, instance: str) -> None:
        self._waits.pop(instance, None)
        self._sent_waits.pop(instance, None)
        self._started.pop(instance).stop()

    def _start(self, cls: type[Connector], instance: str, config: dict[str, str | None]) -> None:
        made = cls()
        waits = self._waits[instance] = Waits()
        try:
            with entered(waits):
                self._begin(made, instance, config, waits)
        except BaseException:
            del self._waits[instance]
            raise

    def _begin(self, made: Connector, instance: str, config: dict[str, str | None], waits: Waits) -> None:
        # no timeout: the author's `start` returns or not, and its threads may call the context at any time
        outdated = PacedRequests(lambda: self._send(TasksOutdated(instance=instance)))
        failed = FirstError(lambda error: self._send(Raised(instance=instance, failure=failure_of(error))))
        made.context = ConnectorContext(
            outdated.request, failed.raised, lambda partitions: self._committed(instance, partitions), waits
        )
        made.start(config)
        self._started[instance] = made

    def _committed(self, instance: str, partitions: Sequence[OffsetMap | None]) -> list[OffsetMap | None]:
        """The committed offsets. Blocks until the worker replies."""
        told: queue.SimpleQueue[CommittedOffsets] = queue.SimpleQueue()
        number = next(self._numbers)
        self._offset_requests[number] = told
        named = tuple(None if one is None else dict(one) for one in partitions)
        self._send(OffsetsWanted(instance=instance, number=number, partitions=named))
        answer = told.get()
        if answer.failure is not None:
            raise raised(answer.failure)
        return list(answer.offsets)

    def on_offsets(self, answer: CommittedOffsets) -> None:
        """Pass the worker's reply to the waiting caller."""
        asking = self._offset_requests.pop(answer.number, None)
        if asking is not None:
            asking.put(answer)


def _failure_of(error: BaseException) -> CallFailure:
    """The result of `failure_of`; if that fails (no stack or memory left), the class of the error alone."""
    try:
        return failure_of(error)
    except BaseException as other:  # noqa: BLE001 - the caller must get an answer
        message = f"{type(error).__name__} (its text cannot be read: {type(other).__name__})"
        return CallFailure(kind="failed", message=message, error_class="UNKNOWN")


def call_method(connector: Connector, what: str, arguments: tuple[Any, ...]) -> Any:
    """Call a method of an instance by name, with arguments as received."""
    if what == "task_configs":
        return checked_task_configs(connector.task_configs(*arguments))
    if what == "validate":
        wrong = checked_list(what, connector.validate(*arguments), ConfigError)
        return [(one.field, author_text(error_text(one)), author_text(one.fix)) for one in wrong]
    if what == "warnings":
        warned = checked_list(what, connector.warnings(*arguments), FieldViolation)
        return [(one.field, author_text(one.message), author_text(one.fix)) for one in warned]
    if what == "task_class":
        return checked_task_class(connector.task_class())
    if what in ("exactly_once_support", "can_define_transaction_boundaries"):
        return checked_answer(what, getattr(connector, what)(*arguments))
    if what == "alter_offsets" and isinstance(connector, SinkConnector):
        config, offsets = arguments
        named = {(topic, partition): offset for topic, partition, offset in offsets}
        return checked_agreement(connector.alter_offsets(config, named))
    if what == "alter_offsets" and isinstance(connector, SourceConnector):
        config, offsets = arguments
        pairs = [(partition, offset) for partition, offset in offsets]
        return checked_agreement(connector.alter_offsets(config, pairs))
    if what == "offsets_at" and isinstance(connector, SourceConnector):
        config, time_ms, committed = arguments
        pairs = [(partition, offset) for partition, offset in committed]
        return checked_places(connector.offsets_at(config, time_ms, pairs))
    if what == "offsets_note" and isinstance(connector, SourceConnector):
        config, committed = arguments
        return connector.offsets_note(config, [(partition, offset) for partition, offset in committed])
    return getattr(connector, what)(*arguments)


def _class(loaded: Any, entry: str) -> type[Connector]:
    """The connector class. Raises TypeError when it is not one."""
    if not (isinstance(loaded, type) and issubclass(loaded, SinkConnector | SourceConnector)):
        raise TypeError(f"{entry} names no SourceConnector or SinkConnector")
    return loaded


_RULES = ("check", "refine", "strict", "values", "visible")


def _rule(cls: type[Connector] | type[AuthoredPlugin], what: str, name: str, about: Any) -> Any:
    """Evaluate a rule of a key's definition: its validator for a value, its recommender for the other values."""
    key = cls.config_def().keys[name]
    if what in ("values", "visible"):
        assert key.recommender is not None
        offered = getattr(key.recommender, what)(name, about)
        return list(offered) if what == "values" else offered
    assert key.validator is not None
    rule: Callable[[str, Any], Any] | None = getattr(key.validator, what)
    assert rule is not None
    return rule(name, about)


def _call_authored(cls: type[AuthoredPlugin], call: Call) -> Any:
    """Describe or configure a transformation, predicate or converter; only runs use it on records."""
    if call.what in _RULES:
        return _rule(cls, call.what, *call.arguments)
    if call.what == "describe_authored":
        (version,) = call.arguments
        checked_class(cls)
        kinds = (RecordTransformation, RecordPredicate, RecordConverter)
        return AuthoredDescription(
            class_name=cls.class_name,
            aliases=tuple(cls.aliases),
            kind=next(kind.__name__ for kind in kinds if issubclass(cls, kind)),
            version=cls.version or version,
            keys=_keys(cls),
        )
    assert call.what == "configure", call.what
    made = cls()
    made.configure(*call.arguments)
    made.close()
    return None


def _described(cls: type[Connector], version: str) -> ConnectorDescription:
    """Description of the class; `version` of the distribution, for a class without one."""
    checked_class(cls)
    return ConnectorDescription(
        class_name=cls.class_name,
        aliases=tuple(cls.aliases),
        kind=cls.kind.value,
        version=getattr(cls, "version", None) or version,
        java_task_class=cls.java_task_class,
        default_converters=_texts(cls.default_converters),
        keys=_keys(cls),
    )


def _texts(found: Mapping[str, str]) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()}


def _keys(cls: type[Connector] | type[AuthoredPlugin]) -> tuple[KeyDescription, ...]:
    """The keys of the definition. Raises ConfigError naming a key that cannot be transferred."""
    found: list[KeyDescription] = []
    for name, key in checked_definition(cls).keys.items():
        try:
            found.append(_key(key))
            _packed(Answer(number=0, value=found[-1]))
        except Exception as error:
            raise ConfigError(
                f"the key {name} of {cls.__name__}.config_def cannot be sent to the worker: {error}"
            ) from error
    return tuple(found)


def _key(key: ConfigKey) -> KeyDescription:
    rule = key.validator
    return KeyDescription(
        name=key.name,
        type=key.type.value,
        importance=key.importance.value,
        doc=key.doc,
        required=key.required,
        default=None if key.required else key.default,
        group=key.group,
        order=key.order,
        width=key.width,
        display_name=key.display_name,
        dependents=tuple(key.dependents),
        rule=None if rule is None else rule.text,
        refines=rule is not None and rule.refine is not None,
        strict=rule is not None and rule.strict is not None,
        recommends=key.recommender is not None,
    )


def _packed(message: _ToWorker) -> bytes:
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:  # in an author's text
        return msgspec.json.encode(escaped_within(msgspec.to_builtins(message)))


def serve(line: Connection, broken: CallFailure | None = None) -> None:
    """Answer calls until the connection ends; `broken` as in `PluginConnectors`."""
    writing = threading.Lock()

    def say(message: _ToWorker) -> None:
        try:
            packed = _packed(message)
        except (TypeError, ValueError) as error:  # a result that cannot be encoded is the author's mistake
            if not isinstance(message, Answer):
                raise
            failure = CallFailure(kind="failed", message=f"{error}", error_class="FATAL")
            packed = msgspec.json.encode(Answer(number=message.number, failure=failure))
        try:
            with writing:
                line.send_bytes(packed)
        except OSError:
            os._exit(1)  # the worker is gone; or the author's code closed the connection, and pending calls must fail

    connectors = PluginConnectors(say, broken)
    threading.Thread(target=_look, args=(connectors,), name="waits", daemon=True).start()
    while True:
        try:
            call = msgspec.json.decode(line.recv_bytes(), type=Call | CommittedOffsets)
        except (EOFError, OSError):
            return
        if isinstance(call, CommittedOffsets):
            connectors.on_offsets(call)
            continue
        threading.Thread(target=connectors.execute, args=(call,), name=call.what, daemon=True).start()


def _look(connectors: PluginConnectors) -> None:
    """Check waits for ever: the end of the process ends it."""
    while True:
        time.sleep(_LOOK_S)
        connectors.look_at_waits()


def _keep(line: Connection) -> None:
    """Tie this process to the connection: the process lives as long as the worker's end, and the connection no longer
    than this process.

    Signals to all processes of a terminal or a unit (Ctrl-C, `systemctl stop`) are ignored: they are for the worker,
    which still has to stop the connectors. The connection is not inherited, because while a forked or started child
    held it, the worker would not notice the end of this process.
    """
    ours = {number: signal.signal(number, lambda _number, _frame: None) for number in (signal.SIGINT, signal.SIGTERM)}

    def leave() -> None:
        line.close()
        for number, handler in ours.items():
            signal.signal(number, handler)

    os.set_inheritable(line.fileno(), False)
    os.register_at_fork(after_in_child=leave)


def _entered(imports: PluginImports) -> CallFailure | None:
    """Make this process the plugin's; the error if that failed, None = it succeeded."""
    try:
        plugin_imports.enter(imports)
    except BaseException as error:  # noqa: BLE001 - the lines of .pth files are an author's code
        said = message_of(error)
        why = f"an import of the .pth files in {imports.site_packages} ended it: {said}; correct or remove that file"
        return CallFailure(kind="import", message=why)
    return None


def main() -> None:
    """Run the process, from its arguments to the end of the worker."""
    name_process("herdmesh.worker.plugins")
    configure_logging(os.environ.get("HERDMESH_LOG_LEVEL", "info"))
    log_identity()
    hide_in_output()
    line = Connection(int(sys.argv[1]))
    _keep(line)
    serve(line, _entered(msgspec.json.decode(sys.argv[2], type=PluginImports)))
    os._exit(0)  # the author's threads may not end


if __name__ == "__main__":
    main()
