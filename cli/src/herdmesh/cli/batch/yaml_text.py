"""YAML of connector files, read with every scalar as text (`display.documents` writes YAML).

Owns the few YAML rules that connector configs need. A config's values are texts, so a plain `yes`, `010` or `1.10`
stays as it is written; a plain `null`, `~` or nothing is null. A key that is written twice is an error.

Imported when a YAML file is read, and not at the start of `herd`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import yaml


class YamlError(ValueError):
    """The text is not YAML, or has something that no connector file may have."""


class _TextLoader(yaml.SafeLoader):
    """Loader of texts, null, lists and mappings, with anchors and merge keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - an attribute of the library's class
        first: [one for one in resolvers if one[0] in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping, whose own keys must differ."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError(f"a key is a list or a mapping{_at(key)}")
            if key.value in seen:
                raise YamlError(f"{key.value} is there twice{_at(key)}")
            seen.add(cast("str", key.value))
        return super().construct_mapping(node, deep)


def _at(node: yaml.Node) -> str:
    return f", line {node.start_mark.line + 1}"


def load_all(data: bytes) -> list[Any]:
    """All documents of a text. Raises YamlError with the line."""
    try:
        return list(yaml.load_all(data, _TextLoader))
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        raise YamlError(f"{error.problem or error.context}{where}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise YamlError(" ".join(str(error).split())) from None
