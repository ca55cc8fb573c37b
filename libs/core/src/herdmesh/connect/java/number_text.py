"""Number formatting and wrapping as in Java 17: `Double.toString`, `Float.toString`, 64-bit and 32-bit overflow.

Has no rule of JSON. Parsing of numbers: `number_reading`.

Invariant: `double_text(x)` equals `Double.toString(x)` of the JVM which recorded the golden vectors: Java 17, whose
digits are not always the shortest (JDK-4511638, changed in Java 19), so `repr` alone does not suffice.
"""

from __future__ import annotations

import functools
import math
import struct

_FRACTION_BITS = 52  # stored bits of a double's significand
_STEPS_MAX = 18
_TEXT_MAX = 16  # characters
PRINTS_SHORTEST_FROM = 1.0
"""From this size on, below 1e7, Java finds the shortest digits of every double: whole numbers have few digits, and
`_stays_exact` is true for all others.
"""
_SMALL_EXPONENTS = range(-21, 63)  # binary exponents for which Java tries plain long arithmetic first


def wrap_int64(value: int) -> int:
    """The low 64 bits as a signed number (`BigInteger.longValue`)."""
    return ((value + 0x8000000000000000) & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def wrap_int32(value: int) -> int:
    """The low 32 bits as a signed number (`(int) long`)."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def double_text(value: float) -> str:
    """`Double.toString(value)`: `1.0`, `1.0E300`, `NaN`, `-Infinity`, `-0.0`."""
    if prints_shortest(value):
        return repr(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    bits: int = struct.unpack(">Q", struct.pack(">d", value))[0]
    fraction, exponent = bits & ((1 << _FRACTION_BITS) - 1), (bits >> _FRACTION_BITS) & 0x7FF
    return _text(bits >> 63 != 0, fraction, exponent, 1023, _FRACTION_BITS)


def prints_shortest(value: float) -> bool:
    """True when `repr` and msgspec print the double as Java does: the double is in Java's plain range, where the
    layouts are equal, and has up to 15 digits (both algorithms agree there, checked over millions; "-1234567.12345678"
    is the longest such text), or more digits where Java finds the shortest ones.
    """
    size = abs(value)
    return PRINTS_SHORTEST_FROM <= size < 1e7 or (
        1e-3 <= size < 1e7 and (len(repr(value)) <= _TEXT_MAX or _is_shortest(value))
    )


def float_text(value: float) -> str:
    """`Float.toString((float) value)`: the text of the nearest 32-bit float."""
    if not math.isfinite(value):
        return double_text(value)
    try:
        packed = struct.pack(">f", value)
    except OverflowError:  # beyond a float's range
        return "Infinity" if value > 0 else "-Infinity"
    bits: int = struct.unpack(">I", packed)[0]
    fraction, exponent = bits & 0x7FFFFF, (bits >> 23) & 0xFF
    return _text(bits >> 31 != 0, fraction << (_FRACTION_BITS - 23), exponent, 127, 23)


def _text(negative: bool, fraction: int, exponent: int, bias: int, stored_bits: int) -> str:
    """Text of a float from its parts; `fraction` is aligned to 52 bits, of which the type stores `stored_bits`."""
    sign = "-" if negative else ""
    if exponent == 0:
        if fraction == 0:
            return f"{sign}0.0"
        shift = _FRACTION_BITS + 1 - fraction.bit_length()
        significant_bits = stored_bits + 1 - shift
        fraction, exponent = fraction << shift, 1 - shift
    else:
        fraction |= 1 << _FRACTION_BITS
        significant_bits = stored_bits + 1
    return sign + _layout(*_digits(exponent - bias, fraction, significant_bits))


def _digits(exponent2: int, fraction: int, significant_bits: int) -> tuple[str, int]:
    """Java's digit generation: the digits and the exponent of 0.d1d2... .

    `fraction` is normalised (bit 52 set); the value is fraction / 2**52 * 2**exponent2.
    """
    tail_zeros = (fraction & -fraction).bit_length() - 1
    tiny_bits = max(0, _FRACTION_BITS - tail_zeros - exponent2)  # significant bits right of the point
    if tiny_bits == 0 and exponent2 in _SMALL_EXPONENTS:
        return _whole_digits(fraction, exponent2, significant_bits)
    exponent10 = _estimate_exponent10(fraction, exponent2)
    factor, s, m, fits_long = _scaled(exponent2, exponent10, tail_zeros, significant_bits)
    return _generate((fraction >> tail_zeros) * factor, s, m, exponent10, fits_long)


@functools.lru_cache(4096)
def _scaled(exponent2: int, exponent10: int, tail_zeros: int, significant_bits: int) -> tuple[int, int, int, bool]:
    """Scale to whole numbers. Returns a factor, s, m and whether Java computes in longs: the value is b / s, where b is
    the fraction without its trailing zero bits times the factor, and half a unit in the last place is m / s.
    """
    fraction_bits = _FRACTION_BITS + 1 - tail_zeros
    tiny_bits = max(0, fraction_bits - exponent2 - 1)
    # All three are scaled by common powers of 2 and 5.
    five_b = max(0, -exponent10)
    two_b = five_b + tiny_bits + exponent2
    five_s = max(0, exponent10)
    two_s = five_s + tiny_bits
    two_m = two_b - significant_bits
    two_b -= fraction_bits - 1
    common = min(two_b, two_s)
    two_b, two_s, two_m = two_b - common, two_s - common, two_m - common
    if fraction_bits == 1:
        two_m -= 1  # below a power of two the next lower number is only half as far away
    if two_m < 0:
        two_b, two_s, two_m = two_b - two_m, two_s - two_m, 0
    bits = max(_bits_needed(fraction_bits + two_b, five_b), _bits_needed(two_s + 1, five_s + 1))
    return 5**five_b << two_b, 5**five_s << two_s, 5**five_b << two_m, bits < 64


def _is_shortest(value: float) -> bool:
    """True when Java's digits of a double of 16 or 17 digits in its plain range are the shortest ones, which `repr`
    finds.

    Java finds them except for powers of two (Java sometimes ignores that the next lower number is nearer) and where
    its longs overflow. No decimal number of so few digits is an end of the rounding interval, so that it does not
    matter whether the ends belong to it.
    """
    bits: int = struct.unpack(">Q", struct.pack(">d", abs(value)))[0]
    fraction, exponent2 = bits & ((1 << _FRACTION_BITS) - 1), (bits >> _FRACTION_BITS) - 1023
    if fraction == 0:
        return False
    fraction |= 1 << _FRACTION_BITS
    exponent10 = _estimate_exponent10(fraction, exponent2)
    tail_zeros = (fraction & -fraction).bit_length() - 1
    return _stays_exact(exponent2, exponent10, tail_zeros)


@functools.lru_cache(4096)
def _stays_exact(exponent2: int, exponent10: int, tail_zeros: int) -> bool:
    """True when no long overflows up to the 18th step: 17 digits after a zero when the estimate was one too high."""
    if tail_zeros >= _FRACTION_BITS - exponent2:
        return False  # a whole number
    _, s, m, fits_long = _scaled(exponent2, exponent10, tail_zeros, _FRACTION_BITS + 1)
    return not fits_long or 10 * s + m * 10**_STEPS_MAX < 1 << 63


def _bits_needed(twos: int, fives: int) -> int:
    """Java's estimate of the bits in a number with that many factors of two and five: exact up to 5**26, then three for
    each five.
    """
    return twos + ((5**fives).bit_length() if fives and fives < 27 else fives * 3)


def _generate(b: int, s: int, m: int, exponent10: int, fits_long: bool) -> tuple[str, int]:
    """Digits of b / s, generated until they are within m of the value.

    `fits_long`: Java uses longs here in place of big integers. The results differ: in longs `m` and `b + m` overflow
    (Java treats an overflown m as "near enough on both sides"), while big integers count equality as near enough.
    """
    tens = s * 10
    digits: list[int] = []
    low = high = False
    first = True
    while not low and not high:
        quotient, rest = divmod(b, s)
        b = 10 * rest
        if fits_long:
            m = wrap_int64(m * 10)
            low, high = (b < m, wrap_int64(b + m) > tens) if m > 0 else (True, True)
        else:
            m *= 10
            low, high = b < m, b + m >= tens
        if not first or quotient or high:
            digits.append(quotient)
        else:
            exponent10 -= 1  # the estimate was one too high: the first digit is a leading zero
        if first and not -3 <= exponent10 < 8:
            low = high = False  # scientific notation shows a digit after the point, so Java always makes two
        first = False
    difference = 2 * b - tens
    if high and (not low or difference > 0 or (difference == 0 and digits[-1] % 2)):
        exponent10 += _round_up(digits)
    return "".join(map(str, digits)), exponent10 + 1


def _round_up(digits: list[int]) -> int:
    """Add one to the last digit; returns 1 when the carry made the number a digit longer."""
    at = len(digits) - 1
    while at > 0 and digits[at] == 9:
        digits[at] = 0
        at -= 1
    if digits[at] == 9:
        digits[0] = 1
        return 1
    digits[at] += 1
    return 0


def _whole_digits(fraction: int, exponent2: int, significant_bits: int) -> tuple[str, int]:
    """Digits of a whole number that fits a long; digits beyond the type's precision are rounded away."""
    shift = exponent2 - _FRACTION_BITS
    whole = fraction << shift if shift >= 0 else fraction >> -shift
    dropped = 0
    excess = exponent2 - significant_bits - 1
    if exponent2 > significant_bits and excess > 1:
        dropped = len(str(1 << excess)) - 1
    if dropped:
        power = 10**dropped
        whole, residue = divmod(whole, power)
        if residue >= power >> 1:
            whole += 1
    text = str(whole)
    return text.rstrip("0") or "0", len(text) + dropped


def _estimate_exponent10(fraction: int, exponent2: int) -> int:
    """Java's estimate of the decimal exponent: correct or one too high."""
    mantissa = fraction / (1 << _FRACTION_BITS)
    return math.floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + exponent2 * 0.301029995663981)


def _layout(digits: str, exponent: int) -> str:
    """Java's layout of 0.digits * 10**exponent: plain from 10^-3 up to 10^7, else computerized scientific."""
    if 0 < exponent < 8:
        whole = digits[:exponent].ljust(exponent, "0")
        return f"{whole}.{digits[exponent:] or '0'}"
    if -3 < exponent <= 0:
        return "0." + "0" * -exponent + digits
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent - 1}"
