"""Shortest texts of 32-bit floats, a column at a time.

Owns the digits of FLOAT32: written as a double, the 32-bit number 0.1 would have spurious digits. Which columns need
them: `texts`. Imported when the first such column is written, so that other sinks need not import pyarrow.

Invariant: a text reads as its 32-bit float, and no shorter one does; it has Python's form of a float: 1.0, 1e+20.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow

_pyarrow: Any = pyarrow
_PLAIN_MIN, _PLAIN_END = 1e-4, 1e9
"""Limits between which neither Arrow nor Python writes an exponent."""


def shortest_texts(values: Sequence[float]) -> list[str] | None:
    """Return the text of each value; None if one of them is not a float of 32 bits."""
    wide = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if not ((narrow == wide) | np.isnan(wide)).all():
        return None
    texts: list[str] = _pyarrow.array(narrow).cast(_pyarrow.string()).to_numpy(zero_copy_only=False).tolist()
    size = np.abs(narrow)
    if (((size >= _PLAIN_MIN) & (size < _PLAIN_END)) | (size == 0)).all():
        return [text if "." in text else text + ".0" for text in texts]
    return list(map(repr, map(float, texts)))
