"""Number parsing and narrowing as in the JDK: `Long.parseLong`, `Double.parseDouble`, `new BigDecimal(text)`, casts.

Formatting of numbers: `number_text`.

Invariant: a text that Java refuses with NumberFormatException raises ValueError here, and no other text does.
"""

from __future__ import annotations

import math
import re
from ctypes import c_float
from decimal import Decimal

from herdmesh.connect.java.number_text import wrap_int64

BLANKS = "".join(map(chr, range(0x21)))
"""Characters that `String.trim` removes."""

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?(\d*)|\.(\d+))(?:[eE]([+-]?)(\d+))?")
_NAMED = re.compile(r"[+-]?(NaN|Infinity)")
_FLOATING = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)  # fmt: skip
_INT32 = range(-(1 << 31), 1 << 31)
_EXPONENT_DIGITS = 10  # BigDecimal refuses more digits


def read_integer(text: str, bits: int) -> int:
    """`Byte.parseByte`, ..., `Long.parseLong`. Raises ValueError."""
    digits = text[1:] if text.startswith(("+", "-")) else text
    if digits.isdecimal() and not _beyond_bmp(digits):
        value = int(text)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    raise ValueError(text)


def read_big_integer(text: str) -> int:
    """`new BigInteger(text)`. Raises ValueError."""
    if _INTEGER.fullmatch(text) and not _beyond_bmp(text):
        return int(Decimal(text))
    raise ValueError(text)


def read_decimal(text: str) -> Decimal:
    """`new BigDecimal(text)`. Raises ValueError."""
    found = _DECIMAL.fullmatch(text)
    if found is None or _beyond_bmp(text):
        raise ValueError(text)
    exponent = found[4]
    if exponent is not None:
        digits = str(int(exponent)) if len(exponent) > _EXPONENT_DIGITS else exponent
        power = int(f"{found[3]}{digits}")
        scale = len(found[1] or found[2] or "") - power
        if len(digits) > _EXPONENT_DIGITS or power not in _INT32 or scale not in _INT32:
            raise ValueError(text)
    value = Decimal(text)
    return value or value.copy_abs()  # BigDecimal's zero has no sign


def read_double(text: str) -> float:
    """`Double.parseDouble`. Raises ValueError."""
    text = text.strip(BLANKS)
    if (found := _FLOATING.fullmatch(text)) is not None:
        return float(found[1])
    if _NAMED.fullmatch(text):
        return float(text.replace("Infinity", "inf"))
    if (found := _HEXADECIMAL.fullmatch(text)) is not None:
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise ValueError(text)


def read_float(text: str) -> float:
    """`Float.parseFloat`: the nearest 32-bit float. Raises ValueError."""
    wide = read_double(text)
    found = _FLOATING.fullmatch(text.strip(BLANKS))
    return float32(wide) if found is None else _nearest(wide, found[1])


def float32(value: float) -> float:
    """`(float) value`; too large a value is infinite."""
    return c_float(value).value


def exact_float32(value: int | Decimal) -> float:
    """The 32-bit float nearest to a whole number or a decimal (`Long.floatValue`, `BigDecimal.floatValue`)."""
    try:
        wide = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return _nearest(wide, value)


def float_to_integer(value: float, bits: int) -> int:
    """`(byte) value`, ..., `(long) value`: rounded towards zero, clamped to an int (a long for 64 bits), then
    narrowed."""
    if value != value:
        return 0
    edge = 1 << max(bits, 32) - 1
    whole = edge - 1 if value >= edge else -edge if value <= -edge else int(value)
    return narrow(whole, bits)


def decimal_to_long(value: Decimal) -> int:
    """`BigDecimal.longValue()`: rounded towards zero, the low 64 bits."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent >= 64 or value.adjusted() < 0:
        return 0  # with 64 or more factors of ten the low 64 bits are zero
    return wrap_int64(int(value))


def narrow(value: int, bits: int) -> int:
    """The low bits as a signed number."""
    half = 1 << bits - 1
    return ((value + half) & ((1 << bits) - 1)) - half


def _nearest(wide: float, exact: int | Decimal | str) -> float:
    """Round to 32 bits a double that was itself rounded. Only for a double half-way between two floats can the first
    rounding have hidden which float is nearer.
    """
    rounded = float32(wide)
    if math.isinf(rounded) or rounded == wide:
        return rounded
    if _is_half_way(wide):
        truth = Decimal(exact)
        if truth != Decimal(wide):
            return float32(math.nextafter(wide, math.inf if truth > Decimal(wide) else -math.inf))
    return rounded


def _is_half_way(wide: float) -> bool:
    rounded = float32(wide)
    other = 2 * wide - rounded  # exact: both have few bits
    return float32(other) == other


def _beyond_bmp(text: str) -> bool:
    """True for a text with characters above U+FFFF: Java reads UTF-16 units, and a surrogate is no digit."""
    return not text.isascii() and any(char > "\uffff" for char in text)
