"""Transformations by name.

Owns the list of transformations that exist and the names they answer to. Each has its own module.

Invariant: a transformation can be named by its Java class (`...InsertField$Value`) and, shorter, by
`InsertField$Value`.
"""

from __future__ import annotations

from collections.abc import Mapping

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.transforms.base import Code, Transformation
from herdmesh.connect.transforms.insert_field import InsertField
from herdmesh.connect.transforms.mask_field import MaskField
from herdmesh.connect.transforms.replace_field import ReplaceField

_CLASSES: tuple[type[Transformation], ...] = (InsertField, MaskField, ReplaceField)

TRANSFORMATIONS: Mapping[str, tuple[type[Transformation], bool]] = {
    f"{name}${part}": (cls, part == "Key")
    for cls in _CLASSES
    for part in ("Key", "Value")
    for name in (cls.java_class, cls.__name__)
}
"""Every accepted name -> class and whether it works on the key."""


def make_transformation(field: str, name: str) -> Transformation:
    """The transformation a configuration names at `field` (`transforms.<alias>.type`), not configured yet.

    Raises:
        ConfigError: unknown name; lists what exists.
    """
    found = TRANSFORMATIONS.get(name)
    if found is None:
        known = ", ".join(f"{cls.__name__}${part}" for cls in _CLASSES for part in ("Key", "Value"))
        message = f"Invalid value {name} for configuration {field}: Class {name} could not be found."
        raise ConfigError(message, field=field, fix=f"use one of: {known} (or its Java class name)")
    cls, on_key = found
    return cls(on_key=on_key)


__all__ = ["TRANSFORMATIONS", "Code", "Transformation", "make_transformation"]
