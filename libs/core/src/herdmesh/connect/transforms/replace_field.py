"""ReplaceField: drop, keep and rename fields (reference transforms-converters 2.12).

Owns the three lists and how they combine. Invariant: whether a field stays is decided by its old name; then it is
renamed.
"""

from __future__ import annotations

from typing import Any

from herdmesh.connect.config import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.transforms.base import Code, Transformation
from herdmesh.connect.validators import check_pairs, distinct_values, rename_pairs


class ReplaceField(Transformation):
    """`org.apache.kafka.connect.transforms.ReplaceField`."""

    java_class = "org.apache.kafka.connect.transforms.ReplaceField"
    purpose = "field replacement"
    null_passes = True
    config_def = ConfigDef(
        ConfigKey(
            "exclude", Type.LIST, [], Importance.MEDIUM,
            "Fields to exclude. This takes precedence over the fields to include.", distinct_values(empty_allowed=True),
        ),
        ConfigKey(
            "include", Type.LIST, [], Importance.MEDIUM,
            "Fields to include. If specified, only these fields will be used.", distinct_values(empty_allowed=True),
        ),
        ConfigKey("renames", Type.LIST, [], Importance.MEDIUM, "Field rename mappings.", rename_pairs()),
        ConfigKey(
            "replace.null.with.default", Type.BOOLEAN, True, Importance.MEDIUM,
            "Whether to replace fields that have a default value and that are null to the default value.",
        ),
    )  # fmt: skip

    def _set_up(self, settings: dict[str, Any]) -> None:
        self._exclude: list[str] = settings["exclude"] or []
        self._include: list[str] = settings["include"] or []
        self._renames = check_pairs("renames", settings["renames"] or [])

    def emit_map(self, code: Code, name: str) -> None:
        for field in self._exclude:
            code.line(f"if {field!r} in {name}:")
            code.line(f"    del {name}[{field!r}]")
        if self._include:
            kept = code.bind(frozenset(self._include))
            code.line(f"for field in [field for field in {name} if field not in {kept}]:")
            code.line(f"    del {name}[field]")
        if self._renames.keys() & self._renames.values():
            self._emit_rename_at_once(code, name)
            return
        for old, new in self._renames.items():
            code.line(f"if {old!r} in {name}:")
            code.line(f"    {name}[{new!r}] = {name}.pop({old!r})")

    def _emit_rename_at_once(self, code: Code, name: str) -> None:
        """Names that are both old and new (a swap) must all be taken out before any is put back."""
        renames = code.bind(self._renames)
        code.line(f"moved = [(new, {name}.pop(old)) for old, new in {renames}.items() if old in {name}]")
        code.line(f"{name}.update(moved)")
