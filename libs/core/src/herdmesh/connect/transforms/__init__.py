"""Transformations and predicates: Kafka's own (`kafka`), Confluent's (`confluent`) and Debezium's (`debezium`).

Owns their behaviour, options and names in configs (`lookup`). `base` is the interface: a transformation writes Python
for one shape of record; `chain` compiles and runs it.

Invariant: a config names a transformation by its Java class with or without its package, as in Connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.transforms.base import Alone as Alone
    from herdmesh.connect.transforms.base import Cells as Cells
    from herdmesh.connect.transforms.base import Code as Code
    from herdmesh.connect.transforms.base import Column as Column
    from herdmesh.connect.transforms.base import Compiled as Compiled
    from herdmesh.connect.transforms.base import Diverged as Diverged
    from herdmesh.connect.transforms.base import Made as Made
    from herdmesh.connect.transforms.base import Part as Part
    from herdmesh.connect.transforms.base import PartTransformation as PartTransformation
    from herdmesh.connect.transforms.base import Shape as Shape
    from herdmesh.connect.transforms.base import Transformation as Transformation
    from herdmesh.connect.transforms.lookup import TRANSFORMATION_CLASSES as TRANSFORMATION_CLASSES
    from herdmesh.connect.transforms.lookup import TRANSFORMATIONS as TRANSFORMATIONS
    from herdmesh.connect.transforms.lookup import make_transformation as make_transformation
    from herdmesh.connect.transforms.predicates import PREDICATES as PREDICATES
    from herdmesh.connect.transforms.predicates import Predicate as Predicate
    from herdmesh.connect.transforms.structs import OLD as OLD
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "base": (
                "Alone",
                "Cells",
                "Code",
                "Column",
                "Compiled",
                "Diverged",
                "Made",
                "Part",
                "PartTransformation",
                "Shape",
                "Transformation",
            ),
            "lookup": (
                "TRANSFORMATIONS",
                "TRANSFORMATION_CLASSES",
                "make_transformation",
            ),
            "predicates": (
                "PREDICATES",
                "Predicate",
            ),
            "structs": ("OLD",),
        },
    )
