"""Messages of a newer release with enum values and fields that this release does not know: nothing raises.

Every function of the wire modules that reads a message is found by its types, so that a new one is tested at once. Each
is called twice with messages of one shape: first with values of today, then with enum numbers of tomorrow and with
unknown fields in the message and in every message within it. Where the first call works, the second one has to.
"""

from __future__ import annotations

import inspect
import random
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from types import ModuleType
from typing import Any, cast

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, note, settings
from hypothesis import strategies as st

from herdmesh.api.herder.v1 import connector_pb2 as herder_pb
from herdmesh.api.herder.v1 import worker_session_service_pb2 as session_pb
from herdmesh.api.statusstore.v1 import status_read_service_pb2
from herdmesh.cli.display import views
from herdmesh.configstore.service import wire as config_store
from herdmesh.herder.wire import restart_notes, session, stores, values
from herdmesh.rpc import commit_scopes, properties, revisions
from herdmesh.rpc.errors import HerdmeshError, RequestInvalid
from herdmesh.session import wire as session_wire
from herdmesh.session.messages import SetUnitTarget
from herdmesh.session.model import TargetState
from herdmesh.statusstore.service import wire as status_store
from herdmesh.statusstore.service.filters import StatusFilter
from herdmesh.topicstore.contract import Revision
from herdmesh.worker import measures_wire
from herdmesh.worker import wire as worker

MODULES = (
    *(
        commit_scopes,
        properties,
        revisions,
        session_wire,
        values,
        session,
        stores,
        restart_notes,
        worker,
        measures_wire,
    ),
    *(config_store, status_store, views),
)
#: Requests for a target state: guessing another state would be wrong, so the caller gets the known ones.
REFUSES_BY_NAME = {config_store.target_state_from_proto, values.requested_target_state}
#: Functions that fill a message, and read none.
WRITERS = {"_fill_lag", "_fill_status", "_question_to"}

#: Fields 20000 (a number) and 20001 (bytes), which no message of today has.
UNKNOWN_FIELDS = b"\x80\xe2\x09\x07" + b"\x8a\xe2\x09\x01x"
UNKNOWN_NUMBERS = (40, 99, 2**31 - 1)
DEPTH_MAX = 4

Reader = Callable[..., object]


class EnumNumber:
    """The type of a parameter for a number of an enum."""


def _readers() -> list[tuple[str, Reader, dict[str, Any]]]:
    """Name, function and the types of its parameters."""
    found: list[tuple[str, Reader, dict[str, Any]]] = []
    for module in MODULES:
        for name, function in vars(module).items():
            if not inspect.isfunction(function) or function.__module__ != module.__name__ or name in WRITERS:
                continue
            hints = typing.get_type_hints(function, {**vars(module), **_TYPE_NAMES})
            written = {each: str(text) for each, text in function.__annotations__.items()}
            # A generated enum's numbers are plain int at runtime.
            hints = {each: EnumNumber if written[each].endswith(".ValueType") else hint for each, hint in hints.items()}
            needed = [
                each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty
            ]
            hints = {each: hints[each] for each in needed}
            if any(_reads(hint) for hint in hints.values()):
                found.append((f"{_short(module)}.{name}", function, hints))
    return found


#: Names that the modules import for type checkers only.
_TYPE_NAMES: dict[str, Any] = {"Collection": Collection, "Iterable": Iterable, "Sequence": Sequence}


def _short(module: ModuleType) -> str:
    return module.__name__.removeprefix("herdmesh.").removesuffix(".wire")


def _message_of(hint: Any) -> type[Message] | None:
    return hint if isinstance(hint, type) and issubclass(hint, Message) else None


def _reads(hint: Any) -> bool:
    """Whether the type is a message, several of them, or a number of an enum."""
    inner = typing.get_args(hint)
    return bool(_message_of(hint) or any(map(_message_of, inner)) or hint is EnumNumber)


class Maker:
    """Messages of one shape, with known or with unknown values."""

    def __init__(self, seed: int, *, is_newer: bool) -> None:
        self._shape = random.Random(seed)
        self._is_newer = is_newer

    def argument(self, hint: Any) -> Any:
        """A value for a parameter."""
        message = _message_of(hint)
        if message is not None:
            return self.message(message)
        if hint is EnumNumber:
            return self._number((1, 2, 3))
        inner = next(filter(None, map(_message_of, typing.get_args(hint))), None)
        if inner is not None:
            return [self.message(inner)]
        origin = typing.get_origin(hint) or hint
        return {int: 1, str: "field", Revision: Revision("A", (1,))}.get(origin, ())

    def message(self, kind: type[Message], depth: int = 0) -> Any:
        message: Any = kind()
        chosen = {one.name: self._shape.choice(one.fields).name for one in kind.DESCRIPTOR.oneofs}
        for field in kind.DESCRIPTOR.fields:
            oneof = field.containing_oneof
            is_left_out = oneof is not None and chosen[oneof.name] != field.name
            is_set = self._shape.random() < 0.9 or field.name == "worker_id"
            if is_set and not is_left_out:
                self._fill(message, cast(FieldDescriptor, field), depth)
        if self._is_newer:
            message.MergeFromString(UNKNOWN_FIELDS)
        return message

    def _fill(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries, parts = getattr(message, field.name), field.message_type.fields_by_name
            name = "key" if parts["key"].cpp_type == FieldDescriptor.CPPTYPE_STRING else 1
            if parts["value"].message_type is not None:
                entries[name].CopyFrom(self.message(_class_of(parts["value"]), depth + 1))
            else:
                entries[name] = self._scalar(parts["value"])
        elif field.message_type is not None:
            if depth < DEPTH_MAX:
                made = self.message(_class_of(field), depth + 1)
                (getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)).CopyFrom(
                    made
                )
        elif field.is_repeated:
            getattr(message, field.name).append(self._scalar(field))
        else:
            setattr(message, field.name, self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> Any:
        if field.enum_type is not None:
            return self._number([one.number for one in field.enum_type.values])
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return b"bytes"
            # A name, a word in upper case, and a store's id at once: most checks accept it.
            if field.name.endswith("json"):
                return '{"a": 1}'
            # Only a status that is DESTROYED may lack its worker, and an unknown state is not read as DESTROYED.
            return "A" if field.name == "worker_id" else self._shape.choice(("A",) * 9 + ("",))
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return self._shape.random() < 0.5
        return self._shape.choice((0, 1, 2, 1_000))

    def _number(self, known: Sequence[int]) -> int:
        set_ones = [number for number in known if number]
        usual = self._shape.choice(set_ones) if self._shape.random() < 0.9 else 0
        newer = self._shape.choice(UNKNOWN_NUMBERS)
        return newer if self._is_newer else usual


def _class_of(field: FieldDescriptor) -> type[Message]:
    assert field.message_type is not None
    return GetMessageClass(field.message_type)


READERS = _readers()


@pytest.mark.parametrize(("read", "hints"), [pytest.param(*rest, id=name) for name, *rest in READERS])
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_unknown_enums_and_fields_are_read(read: Reader, hints: dict[str, Any], seed: int) -> None:
    usual, newer = Maker(seed, is_newer=False), Maker(seed, is_newer=True)
    try:
        read(*map(usual.argument, hints.values()))
    except HerdmeshError:
        return  # refused even with known values
    arguments = [newer.argument(hint) for hint in hints.values()]
    note(str(arguments))
    if read in REFUSES_BY_NAME:
        with pytest.raises(RequestInvalid, match="knows no target state"):
            read(*arguments)
    else:
        read(*arguments)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_filter_with_unknown_states_is_read(seed: int) -> None:
    for kind in (status_read_service_pb2.ListStatusesRequest, status_read_service_pb2.WatchStatusesRequest):
        request = Maker(seed, is_newer=True).message(kind)
        StatusFilter.of(request)


def test_every_wire_module_has_readers() -> None:
    tested = {name.rpartition(".")[0] for name, *_ in READERS}
    assert tested == {_short(module) for module in MODULES}
    assert len(READERS) >= 80


def test_a_report_of_an_unknown_state_changes_nothing() -> None:
    """Read as UNASSIGNED it would end the worker's claim, and the task would start elsewhere."""
    report = session_pb.UnitReport(unit=session_pb.Unit(connector="a", task=0), state=cast(Any, 99))
    assert session.event(1, session_pb.SessionRequest(report=report)) is None


def test_a_message_of_an_unknown_kind_is_skipped() -> None:
    assert session.event(1, session_pb.SessionRequest.FromString(UNKNOWN_FIELDS)) is None
    assert session_wire.message_from(session_pb.SessionResponse.FromString(UNKNOWN_FIELDS)) is None
    with pytest.raises(RequestInvalid, match="must not be empty"):
        session.event(1, session_pb.SessionRequest())


def test_an_unknown_target_state_pauses_the_unit() -> None:
    unit = session_pb.Unit(connector="a", task=0)
    change = session_pb.SetUnitTargetState(unit=unit, target_state=cast(Any, 99))
    message = session_wire.message_from(session_pb.SessionResponse(set_target_state=change))
    assert isinstance(message, SetUnitTarget)
    assert message.target is TargetState.PAUSED
    assert values.target_state(cast(Any, 99)) == TargetState.PAUSED
    assert values.target_state(cast(Any, 0)) is None


def test_the_command_line_shows_the_number_of_an_unknown_value() -> None:
    shown = views.connector(herder_pb.Connector(name="a", target_state=cast(Any, 99)))
    assert shown["target_state"] == "UNKNOWN_99"
