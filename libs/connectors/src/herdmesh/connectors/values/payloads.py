"""JSON of values: the one form in which file, HTTP and text sinks write them.

Owns the JSON of a value, with a schema and without. With a schema it is JsonConverter's payload. Without one it is the
same, and a value that JsonConverter refuses (it has no class for it) is written like its counterpart with a schema: a
BigDecimal as a number, a date as milliseconds since 1970, a struct as an object.

    numbers    as they are, exactly; NaN and the infinities are the texts "NaN", "Infinity", "-Infinity"
    Decimal    a number with all its digits, or Base64 (`DecimalFormat` of Connect)
    Date       days since 1970; Time: milliseconds of the day; Timestamp: milliseconds since 1970
    bytes      Base64
    map        an object; under a schema whose keys are no texts an array of pairs

Invariant: one text for each value, `null` for none; a value that
does not fit its schema is a DataError, never another value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any, cast

import msgspec

from herdmesh.connect.converters import JsonConverter, Texts
from herdmesh.connect.json_text import jackson
from herdmesh.connect.model import (
    LOGICAL,
    BigInteger,
    Float32,
    Int8,
    Int16,
    Int32,
    UnreadTexts,
    decimal_text,
    java_text,
)
from herdmesh.sdk import DataError, JavaDate, Schema, Struct

_encode_lines = msgspec.json.Encoder(decimal_format="number").encode_lines
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_NO_NUMBER = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""First bytes of a double in msgpack that is NaN or infinite; a text may contain them, too."""
_NULL = re.compile(rb"null")
_BETWEEN = "\x7f"
_BETWEEN_BYTES = _BETWEEN.encode()
_ONLY_DICTS = frozenset((dict,))
_CONTAINERS = frozenset((dict, list))
_TEXTS = frozenset((str,))
_SCALARS: frozenset[type] = frozenset((str, int, float, bool, bytes, type(None), Int8, Int16, Int32, Float32))
_SCALARS_AND_CONTAINERS = _SCALARS | _CONTAINERS


class Payloads:
    """JSON writer for the values of one sink."""

    def __init__(self, *, numeric: bool = True, defaults: bool = True) -> None:
        """`numeric`: write decimals as numbers instead of Base64. `defaults`: write a null as the default of its
        schema, if there is one (`replace.null.with.default` of the converter that read it).
        """
        self._texts = Texts(numeric, defaults)
        self._converter = JsonConverter()
        self._converter.configure(
            {
                "schemas.enable": "false",
                "decimal.format": "NUMERIC" if numeric else "BASE64",
                "replace.null.with.default": "true" if defaults else "false",
            },
            "value",
        )

    def texts(self, values: Sequence[Any], schema: Schema | None) -> list[bytes]:
        """Return the JSON of each value. Raises DataError for a value that does not fit the schema."""
        if schema is None:
            return self._schemaless_texts(values)
        texts = self._converter.write_many(values, schema)
        return [b"null" if text is None else text for text in texts] if None in texts else cast("list[bytes]", texts)

    def lines(self, values: Sequence[Any], schema: Schema | None) -> bytes:
        """Return the JSON of each value, with one line feed after each and none within. Raises like `texts`."""
        if (schema is None or _is_plain_text(schema)) and (texts := _text_lines(values)) is not None:
            return texts
        if schema is not None:
            return self._converter.lines(values, schema)
        of_json = jackson.is_of_json(values)
        try:
            data = _encode_lines(values)
        except (OverflowError, UnicodeEncodeError, TypeError):
            pass  # a lone surrogate, or a type of Connect's: convert one by one
        else:
            # msgspec writes NaN and the infinities as `null`. The pattern takes half the time of `in`.
            if of_json or not _NULL.search(data) or not _has_no_number(values):
                return data
        return b"".join([self._schemaless(value) + b"\n" for value in values])

    def with_defaults(self, values: Sequence[Any], schema: Schema) -> Sequence[Any]:
        """Replace each null by the schema's default, if the writer is configured to and there is one."""
        default = schema.default
        if default is None or not self._texts.replace_null:
            return values
        return [default if value is None else value for value in values]

    def _schemaless_texts(self, values: Sequence[Any]) -> list[bytes]:
        try:
            texts = [jackson.dumps(value, whole=True) for value in values]
        except DataError:  # JsonConverter has no class for a value
            return [self._schemaless(value) for value in values]
        if jackson.is_of_json(values):
            return texts
        # Like `_schemaless`, for only those values that it may change.
        for place, text in enumerate(texts):
            if b"[[" in text:
                texts[place] = self._schemaless(values[place])
        return texts

    def _schemaless(self, value: Any) -> bytes:
        try:
            data = jackson.dumps(value, whole=True)
        except DataError:
            pass
        else:
            # A text with `[[` may be a list of lists, or a map whose keys are no texts, which must be an object here.
            if b"[[" not in data or _is_known(value):
                return data
        return jackson.dumps(self._known(value), whole=True)

    def _known(self, value: Any) -> Any:
        """Convert everything in the value that JsonConverter has no class for."""
        kind = cast("type[object]", type(value))
        if kind is dict or isinstance(value, dict):
            members = cast("dict[Any, Any]", value)
            named = {_name(key): self._known(item) for key, item in members.items()}
            if len(named) < len(members):
                names = sorted({_name(key) for key in members if [*map(_name, members)].count(_name(key)) > 1})
                raise DataError(
                    f"two keys of a map have the same name {names[0]!r}, and JSON can have only one such member"
                )
            return named
        if kind is list or kind is tuple:
            return [self._known(item) for item in value]
        if kind is JavaDate:
            return int(value)
        if kind is Decimal:
            return msgspec.Raw(decimal_text(value).encode())
        if kind is BigInteger:
            return msgspec.Raw(int.__repr__(value).encode())
        if kind is Struct:
            return msgspec.Raw(_ascii(self._texts.text(value.schema, value)))
        return value


@lru_cache(maxsize=8)
def payloads(*, numeric: bool = True, defaults: bool = True) -> Payloads:
    """Return the cached writer with these settings. Not thread-safe."""
    return Payloads(numeric=numeric, defaults=defaults)


def texts_of(values: Sequence[Any], schema: Schema | None) -> list[bytes]:
    """Return `Payloads.texts` with decimals as numbers and defaults for nulls."""
    return payloads().texts(values, schema)


def _ascii(text: str) -> bytes:
    """Escape JSON to ASCII: other characters occur only in texts, where they may be escaped."""
    if text.isascii():
        return text.encode()
    return "".join(char if char < "\x80" else _escaped(char) for char in text).encode()


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def _name(key: Any) -> str:
    """Return a key of a map without a schema as a member's name."""
    return key if isinstance(key, str) else java_text(key)


def _is_known(value: Any) -> bool:
    """Return whether JsonConverter has a class for everything in the value: the check for `Payloads._known`."""
    kind = cast("type[object]", type(value))
    if kind is dict:
        members = cast("dict[Any, Any]", value)
        if not _TEXTS.issuperset(map(type, members)):
            return False
        items: Iterable[Any] = members.values()
    elif kind is list:
        items = cast("list[Any]", value)
    else:
        return kind in _SCALARS
    kinds = set(map(type, items))
    return kinds <= _SCALARS or (
        kinds <= _SCALARS_AND_CONTAINERS and all(_is_known(item) for item in items if type(item) in _CONTAINERS)
    )


def _is_plain_text(schema: Schema) -> bool:
    return schema.type == "STRING" and schema.name not in LOGICAL


def _text_lines(values: Sequence[Any]) -> bytes | None:
    """Return the lines of values that are all texts; None if they are not, or have a lone surrogate.

    The texts are encoded as one text, with a separator that JSON does not escape, in half the time of encoding one by
    one. A text that contains the separator makes it encode one by one.
    """
    try:
        if isinstance(values, UnreadTexts):
            joined = values.joined(_BETWEEN_BYTES)
            if joined is None:  # a null among them, or malformed
                return _encode_lines(values)
            data = _encode(str(joined, "utf-8")[:-1])
        elif len(values) and type(values[0]) is dict:
            return None  # this check is cheaper than an error in `join`
        else:
            data = _encode(_BETWEEN.join(values))
        if data.count(_BETWEEN_BYTES) == len(values) - 1:
            return data.replace(_BETWEEN_BYTES, b'"\n"') + b"\n"
        return _encode_lines(values)
    except (TypeError, UnicodeEncodeError):
        return None


def _has_no_number(values: Sequence[Any]) -> bool:
    """Return whether a float in the values (all of which msgspec can write) is NaN or infinite."""
    items: list[Any] = list(values)
    try:
        if _NO_NUMBER.search(_pack(items)) is None:
            return False
    except OverflowError:  # an integer beyond 64 bits
        pass
    while items:
        kinds = set(map(type, items))
        if float in kinds:
            total = sum(item for item in items if type(item) is float)
            if not math.isfinite(total) and not all(math.isfinite(item) for item in items if type(item) is float):
                return True
        if kinds.isdisjoint(_CONTAINERS):
            return False
        if kinds <= _ONLY_DICTS:
            items = list(chain.from_iterable(map(dict[Any, Any].values, items)))
            continue
        found: list[Any] = []
        for item in items:
            if type(item) is dict:
                found += cast("dict[Any, Any]", item).values()
            elif type(item) is list:
                found += cast("list[Any]", item)
        items = found
    return False
