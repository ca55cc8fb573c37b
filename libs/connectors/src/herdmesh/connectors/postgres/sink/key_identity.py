"""Identity of keys: which records of a batch name the same row of a table.

Owns the rule for each type of key column. Queries to the database: `tables`; use of the result: `rows`.

The text of a key is not its identity: `AA` and `aa` are one uuid, 1.0 and 1.00 one numeric, `a` and `A` one citext. So
the texts of a key count as its identity only if a rule here proves, for the column's type and the present values,
that two texts are the same if and only if the column holds the same value for both. For all other columns (citext,
`char(n)`, jsonb, inet, intervals, arrays, ranges, floats, collations that treat two texts as equal, ...) and all other
values (a number as a string with a leading zero) the database is queried, in the column's own type and collation.

Invariant: equal tokens are equal keys, and equal keys equal tokens, also those of records with other schemas. A key
with a null equals no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import Any, Final, cast

from herdmesh.connect.model import DATE, LOGICAL, TIMESTAMP, BigInteger, Int8, Int16, Int32, Int64
from herdmesh.connectors.postgres.sink.texts import TextForm, Texts, are_texts
from herdmesh.connectors.postgres.types import numeric_shape
from herdmesh.sdk import JavaDate

Tokens = Sequence[Hashable]


@dataclass(frozen=True, slots=True)
class KeyType:
    """The type of a key column, with a domain resolved to its base type."""

    name: str
    """Name in `pg_type`, for types of `pg_catalog`; `enum` for an enumeration; empty for any other."""
    typmod: int = -1
    """Precision and scale, length, digits of seconds; -1 = none."""
    compares_bytes: bool = True
    """Its collation treats two texts as equal only if they have the same bytes."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column, and the form of its values."""

    type: KeyType
    form: TextForm


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of rows."""

    identities: Tokens
    """One token for each row; rows with equal tokens are one row of the table."""
    images: Tokens
    """One token for each row, compared among rows of one schema; rows with equal tokens are also stored in the same
    form: 1.0 and 1.00 are not.
    """


def proven(columns: Sequence[KeyColumn], values: Sequence[Sequence[Any]], texts: Sequence[Texts]) -> Keys | None:
    """Return the keys of rows, by column; None = the database must be queried.

    `columns`: empty if there is no table; then no two rows have the same key.
    """
    if not columns:
        nobody = range(len(texts[0]))
        return Keys(nobody, nobody)
    tokens: list[Tokens] = []
    for column, given, written in zip(columns, values, texts, strict=True):
        rule = _RULES.get(column.type.name)
        found = None if rule is None else rule(column, given, written)
        if found is None:
            return None
        tokens.append(found)
    own = cast("Tokens", tokens[0] if len(tokens) == 1 else list(zip(*tokens, strict=True)))
    own = without_nulls(own, texts)
    return Keys(own, own)


def without_nulls(tokens: Tokens, texts: Sequence[Texts]) -> Tokens:
    """Replace the token of each row with a null in its key by a unique one."""
    if all(map(are_texts, texts)):
        return tokens
    rows = zip(tokens, *texts, strict=True)
    return [object() if None in row else token for token, *row in rows]


Rule = Callable[[KeyColumn, Sequence[Any], Texts], "Tokens | None"]
"""Function from values and their texts, with nulls, to one token each; None = not proven."""

_INTEGERS: Final = frozenset((int, Int8, Int16, Int32, Int64, BigInteger))
_INTEGER_TYPES: Final = ("INT8", "INT16", "INT32", "INT64")
_BYTES: Final = frozenset((bytes, bytearray, memoryview))
_INTEGER_TEXT: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_UUID_NOISE: Final = str.maketrans("ABCDEF", "abcdef", "-{}")
_UUID_CHARS: Final = 36
_UUID_HYPHENS: Final = (8, 13, 18, 23)
_MILLISECONDS_DIGITS: Final = 3


def _are(values: Sequence[Any], kinds: frozenset[type]) -> bool:
    return set(map(type, values)) - {type(None)} <= kinds


def _of_integers(column: KeyColumn, values: Sequence[Any], texts: Texts) -> Tokens | None:
    schema, is_plain = column.form.schema, column.form.write is None
    if is_plain and schema is not None and schema.type in _INTEGER_TYPES and schema.name not in LOGICAL:
        return texts  # `texts.texts` has checked that they are integers
    if _are(values, _INTEGERS) or all(text is None or _INTEGER_TEXT.fullmatch(text) for text in texts):
        return texts
    return None


def _of_texts(column: KeyColumn, _values: Sequence[Any], texts: Texts) -> Tokens | None:
    return texts if column.type.compares_bytes else None


def _of_varchars(column: KeyColumn, _values: Sequence[Any], texts: Texts) -> Tokens | None:
    """Tokens of varchars: PostgreSQL cuts blanks off a text that is too long."""
    is_cut = column.type.typmod != -1 and any(text is not None and text[-1:] == " " for text in texts)
    return texts if column.type.compares_bytes and not is_cut else None


def _of_labels(_column: KeyColumn, _values: Sequence[Any], texts: Texts) -> Tokens | None:
    return texts


def _of_uuids(_column: KeyColumn, values: Sequence[Any], texts: Texts) -> Tokens | None:
    """Tokens of uuids: all texts that PostgreSQL reads as one uuid differ only in case, hyphens and braces."""
    if _are_usual_uuids(texts):
        return texts
    if not _are(values, frozenset((str,))):
        return None
    return [None if text is None else _usual_uuid(text) for text in texts]


def _are_usual_uuids(texts: Texts) -> bool:
    """Return whether all have PostgreSQL's form of a uuid. Checks
    all texts at once, in a tenth of the time of one by one.
    """
    try:
        joined = "\n".join([*cast("list[str]", texts), ""])
    except TypeError:  # a null
        return False
    count, step = len(texts), _UUID_CHARS + 1
    hyphens = "-" * count
    return (
        len(joined) == step * count
        and joined[_UUID_CHARS::step] == "\n" * count
        and joined.count("\n") == count
        and all(joined[at::step] == hyphens for at in _UUID_HYPHENS)
        and joined.count("-") == len(_UUID_HYPHENS) * count
        and joined.lower() == joined
    )


def _usual_uuid(text: str) -> str:
    digits = text.translate(_UUID_NOISE)
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _of_bytes(_column: KeyColumn, values: Sequence[Any], texts: Texts) -> Tokens | None:
    return texts if _are(values, _BYTES) else None


def _of_booleans(_column: KeyColumn, values: Sequence[Any], texts: Texts) -> Tokens | None:
    return texts if _are(values, frozenset((bool,))) else None


def _of_numerics(column: KeyColumn, values: Sequence[Any], texts: Texts) -> Tokens | None:
    """Tokens of decimals with one scale that the column does not round. Records of another schema may have another
    scale, so the tokens have no trailing zeros.
    """
    scale_max = shape[1] if (shape := numeric_shape(column.type.typmod)) is not None else None
    if _are(values, _INTEGERS):
        return texts if scale_max is None or scale_max >= 0 else None
    if not _are(values, frozenset((Decimal,))):
        return None
    written = [text for text in texts if text is not None]
    scales = {len(text.partition(".")[2]) for text in written}
    if len(scales) > 1 or any(text[:2] == "-0" and not text.strip("-0.") for text in written):
        return None
    scale = max(scales, default=0)
    if scale_max is not None and scale > scale_max:
        return None
    return texts if scale == 0 else [None if text is None else text.rstrip("0").rstrip(".") for text in texts]


def _of_dates(column: KeyColumn, values: Sequence[Any], texts: Texts) -> Tokens | None:
    schema = column.form.schema
    return texts if schema is not None and schema.name == DATE and _are(values, frozenset((JavaDate,))) else None


def _of_moments(column: KeyColumn, values: Sequence[Any], texts: Texts) -> Tokens | None:
    """Tokens of moments. When a clock is set back, two moments are equal in a column without a zone."""
    schema, kept = column.form.schema, column.type.typmod
    are_moments = (schema is None or schema.name == TIMESTAMP) and _are(values, frozenset((JavaDate,)))
    if not are_moments or 0 <= kept < _MILLISECONDS_DIGITS:
        return None
    return texts if column.type.name == "timestamptz" or column.form.zone is UTC else None


_RULES: Final[Mapping[str, Rule]] = {
    "int2": _of_integers, "int4": _of_integers, "int8": _of_integers, "text": _of_texts, "varchar": _of_varchars,
    "enum": _of_labels, "uuid": _of_uuids, "bytea": _of_bytes, "bool": _of_booleans, "numeric": _of_numerics,
    "date": _of_dates, "timestamp": _of_moments, "timestamptz": _of_moments,
}  # fmt: skip
