"""Numbers as Java 17 prints and wraps them.

Owns `Double.toString`, `Float.toString` and 64-bit (32-bit) wrapping. Does not know JSON.

Invariant: `double_text(x)` is the text `Double.toString(x)` gives on the JVM the golden vectors were recorded with
(Java 17, before JDK-4511638 made it the shortest text: some values carry a digit more than `repr`).
"""

from __future__ import annotations

import math
import struct


def wrap_int64(value: int) -> int:
    """The low 64 bits as a signed number (`BigInteger.longValue`)."""
    return ((value + 0x8000000000000000) & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def wrap_int32(value: int) -> int:
    """The low 32 bits as a signed number (`(int) long`)."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def double_text(value: float) -> str:
    """`Double.toString(value)`: `1.0`, `1.0E300`, `NaN`, `-Infinity`, `-0.0`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = _shortest_digits(repr(value))
    return sign + _layout(digits, exponent)


def float_text(value: float) -> str:
    """`Float.toString((float) value)`: the shortest text that reads back as the same 32-bit float."""
    if not math.isfinite(value):
        return double_text(value)
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    for precision in range(1, 10):
        text = f"{single:.{precision}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            break
    else:
        text = repr(single)
    sign, digits, exponent = _shortest_digits(text)
    return sign + _layout(digits, exponent)


def _shortest_digits(text: str) -> tuple[str, str, int]:
    """Split a Python float text into sign, digits without leading or trailing zeros, and the exponent of 0.d1d2..."""
    sign = ""
    if text[0] == "-":
        sign, text = "-", text[1:]
    mantissa, _, exponent_text = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = (int(exponent_text) if exponent_text else 0) + len(whole)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    exponent -= len(digits) - len(stripped)
    stripped = stripped.rstrip("0")
    if not stripped:
        return sign, "0", 1
    return sign, stripped, exponent


def _layout(digits: str, exponent: int) -> str:
    """Java's layout of 0.digits * 10**exponent: plain from 10^-3 up to 10^7, else computerized scientific."""
    if digits == "0":
        return "0.0"
    if 0 < exponent < 8:
        whole = digits[:exponent].ljust(exponent, "0")
        return f"{whole}.{digits[exponent:] or '0'}"
    if -3 < exponent <= 0:
        return "0." + "0" * -exponent + digits
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"
