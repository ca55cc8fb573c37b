"""Enums on the wire: the one conversion between a contract's enum and a Python enum of the same names.

Owns the reading of numbers that this release does not know. The meaning of the values belongs to others. During a
rolling upgrade a peer may be one release newer and send such numbers. Two rules keep both releases working:

- A value that a peer *reports* reads as a default that the caller chooses: the most careful of the known values.
- A value in a *request* is never guessed: a request with an unknown value is refused with `RequestInvalid`, which
  names the field. Acting on the default would do something other than the request.

Invariant: no number that a peer can send makes `enum_from` or `name_of` raise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, Generic, Protocol, TypeVar

from google.protobuf.descriptor import EnumDescriptor

_UNSPECIFIED: Final = "UNSPECIFIED"

EnumT = TypeVar("EnumT", bound=Enum)
NumberT = TypeVar("NumberT", bound=int)
NumberOut = TypeVar("NumberOut", bound=int, covariant=True)
DefaultT = TypeVar("DefaultT")


class Contract(Protocol[NumberOut]):
    """A generated enum (`connector_pb2.RunState`)."""

    DESCRIPTOR: EnumDescriptor

    def items(self) -> Iterable[tuple[str, NumberOut]]: ...


class WireEnum(Generic[EnumT, NumberT]):
    """A contract's enum and the Python enum whose members have its names without the prefix (`RUN_STATE_`).

    A Python member for the contract's UNSPECIFIED has "UNSPECIFIED" as its value. Raises ValueError when the contract
    lacks a member, which only a change within this release can cause.
    """

    def __init__(self, contract: Contract[NumberT], members: type[EnumT]) -> None:
        words = {word: number for number, word in _words(contract)}
        self._numbers: dict[EnumT, NumberT] = {}
        for member in members:
            word = member.name if member.name in words else str(member.value)
            if word not in words:
                raise ValueError(f"{contract.DESCRIPTOR.full_name} has no value for {member!r}")
            self._numbers[member] = words[word]
        self._members: dict[int, EnumT] = {number: member for member, number in self._numbers.items()}

    def to_wire(self, member: EnumT) -> NumberT:
        """The contract's number."""
        return self._numbers[member]

    def enum_from(self, value: int, default: DefaultT) -> EnumT | DefaultT:
        """The member for a number; `default` for a number without one, which is unspecified or of a newer release."""
        return self._members.get(value, default)


def name_of(contract: Contract[Any], value: int) -> str:
    """The name of a number without the enum's prefix, for people: "" when it is unspecified, `UNKNOWN_<number>` when
    only a newer release knows it."""
    word = _names(contract).get(value, f"UNKNOWN_{value}")
    return "" if word == _UNSPECIFIED else word


@cache
def _names(contract: Contract[Any]) -> Mapping[int, str]:
    return dict(_words(contract))


def _words(contract: Contract[NumberT]) -> list[tuple[NumberT, str]]:
    """The numbers with their names. buf's STANDARD rules require the prefix, and UNSPECIFIED as number 0."""
    prefix = contract.DESCRIPTOR.values_by_number[0].name.removesuffix(_UNSPECIFIED)
    return [(number, name.removeprefix(prefix)) for name, number in contract.items()]
