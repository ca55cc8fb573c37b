"""Transformations by name.

Owns the list of transformations that exist and the names they answer to. Each has its own module.

Invariant: a transformation is named by its Java class (`...InsertField$Value`), and by nothing else, as in Connect.
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.transforms.base import Code, Transformation
from herdmesh.connect.transforms.definitions import is_transformation
from herdmesh.connect.transforms.insert_field import InsertField
from herdmesh.connect.transforms.mask_field import MaskField
from herdmesh.connect.transforms.replace_field import ReplaceField

_CLASSES: tuple[type[Transformation], ...] = (InsertField, MaskField, ReplaceField)

TRANSFORMATIONS: Mapping[str, tuple[type[Transformation], bool]] = {
    f"{cls.java_class}${part}": (cls, part == "Key") for cls in _CLASSES for part in ("Key", "Value")
}
"""Every accepted name -> class and whether it works on the key."""


def make_transformation(field: str, name: str) -> Transformation:
    """The transformation a configuration names at `field` (`transforms.<alias>.type`), not configured yet.

    Raises:
        ConfigError: unknown name, or one this release does not run yet; lists what it runs.
    """
    found = TRANSFORMATIONS.get(name)
    if found is None:
        exists = is_transformation(name)
        why = "this transformation is not built yet" if exists else f"Class {name} could not be found."
        message = f"Invalid value {name} for configuration {field}: {why}"
        raise ConfigError(message, field=field, fix=f"use one of: {', '.join(TRANSFORMATIONS)}")
    cls, on_key = found
    return cls(on_key=on_key)


__all__ = ["TRANSFORMATIONS", "Code", "Transformation", "make_transformation"]
