"""Conversion of enums between the wire and Python: every member has a number, and every number is read."""

from __future__ import annotations

from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.api.common.v1 import connector_pb2
from herdmesh.rpc.enums import WireEnum, name_of


class _State(Enum):
    RUNNING = "running"
    FAILED = "failed"


class _Type(Enum):
    UNKNOWN = "UNSPECIFIED"
    SINK = "SINK"


class _Misspelt(Enum):
    RUNING = "RUNING"


_STATES = WireEnum(connector_pb2.RunState, _State)


def test_every_member_survives_the_round_trip() -> None:
    for member in _State:
        assert _STATES.enum_from(_STATES.to_wire(member), None) is member
    assert _STATES.to_wire(_State.RUNNING) == connector_pb2.RUN_STATE_RUNNING


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_number_is_read(number: int) -> None:
    member = _STATES.enum_from(number, None)
    assert member is None or _STATES.to_wire(member) == number
    assert name_of(connector_pb2.RunState, number) in {
        "UNASSIGNED", "RUNNING", "PAUSED", "FAILED", "RESTARTING", "STOPPED", "DESTROYED", "", f"UNKNOWN_{number}"
    }  # fmt: skip


def test_unspecified_reads_as_the_default_or_as_its_own_member() -> None:
    assert _STATES.enum_from(0, _State.FAILED) is _State.FAILED
    assert WireEnum(connector_pb2.ConnectorType, _Type).enum_from(0, None) is _Type.UNKNOWN


def test_a_member_missing_from_the_contract_is_found_at_import() -> None:
    with pytest.raises(ValueError, match=r"RunState has no value for .*RUNING"):
        WireEnum(connector_pb2.RunState, _Misspelt)
