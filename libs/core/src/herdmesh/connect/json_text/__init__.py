"""JSON text: Jackson's, as Connect writes it for values without a schema, and the lossless JSON form of a whole record.

Owns reading and writing. `converters.json` has the JSON of values under a schema.

Invariant: imports `java` and `model` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.json_text.jackson import like as like
    from herdmesh.connect.json_text.jackson import quote as quote
    from herdmesh.connect.json_text.jackson_reader import Missing as Missing
    from herdmesh.connect.json_text.jackson_reader import double_of as double_of
    from herdmesh.connect.json_text.jackson_reader import exact_number as exact_number
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "jackson": (
                "like",
                "quote",
            ),
            "jackson_reader": (
                "Missing",
                "double_of",
                "exact_number",
            ),
        },
    )
