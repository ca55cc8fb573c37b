"""Text forms of one document of plain values: YAML, CSV, names, and JSONPath templates.

Owns the forms. Prints nothing; `herdmesh.cli.display.output` chooses the form and prints it. A document is an object,
or a list of objects. PyYAML and python-jsonpath are imported when their form is wanted, because they cost start-up
time.

Invariant: YAML and CSV leave out no value that the document has.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from herdmesh.cli.errors import EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from herdmesh.cli.display.views import Json

#: The key that names an object, and the kind of object that has it. The first key that is there decides.
_NAMED_BY: Final = (
    ("name", "connector"),
    ("class", "plugin"),
    ("logger", "logger"),
    ("letter", "letter"),
    ("worker_id", "worker"),
)
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_ROOTLESS: Final = re.compile(r"^[\w*'\"-]")
#: The escapes of a quoted text in a template, as kubectl has them.
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\\": "\\"}
_ESCAPED: Final = re.compile(r"\\[nt\"\\]")


def yaml_text(document: Any) -> str:
    """The document as YAML, keys in their order; texts that look like null or a number are quoted, long ones kept on a
    line.
    """
    import yaml

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=False, width=10_000)


def names(document: Any, kind: str) -> Iterable[str]:
    """`kind/name` of each object; `kind` "" = the kind by the key that names it. An object without a name has none."""
    for item in _items(document):
        if not isinstance(item, dict):
            yield f"{kind}/{item}" if kind else str(item)
            continue
        found = cast("Json", item)
        for key, kind_of_key in _NAMED_BY:
            if isinstance(found.get(key), str):
                yield f"{kind or found.get('kind') or kind_of_key}/{found[key]}"
                break


def csv_text(document: Any, *, headers: bool = True) -> str:
    """A line for each object, with a column for each value; a value of an inner object has a dotted name, a list is
    JSON. Objects need not have the same keys.
    """
    rows = [_flat(item) if isinstance(item, dict) else {"value": cell_text(item)} for item in _items(document)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return csv_rows(columns, [[row.get(key, "") for key in columns] for row in rows], headers=headers)


def csv_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], *, headers: bool = True) -> str:
    """Lines of CSV (RFC 4180, line ends as on this system)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if headers and columns:
        writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def jsonpath_text(document: Any, template: str) -> str:
    """The result of a template as kubectl has it: `{.name}`, `{[*].name}`, `{.items[*].name}`,
    `{range [*]}{.name}{"\\n"}{end}`, text between them as it is. A template without braces is one expression.

    Several results of one expression are separated by a blank. `items` of a list is the list itself. Raises
    CommandError for a template that cannot be read.
    """
    parts = _EXPRESSION.split(template if "{" in template else f"{{{template}}}")
    return _filled(document, parts, template)


def _filled(document: Any, parts: list[str], template: str) -> str:
    """Parts alternate between text and expression; a range takes the parts up to its end."""
    done: list[str] = []
    at = 0
    while at < len(parts):
        if at % 2 == 0:
            done.append(parts[at])
        elif parts[at].startswith("range "):
            end = _end_of_range(parts, at, template)
            inner = parts[at + 1 : end]
            over = parts[at].removeprefix("range ")
            done += [_filled(item, inner, template) for item in _found(document, over, template)]
            at = end
        elif parts[at].startswith('"') and parts[at].endswith('"') and len(parts[at]) > 1:
            done.append(_ESCAPED.sub(lambda found: _ESCAPES[found[0]], parts[at][1:-1]))
        else:
            done.append(" ".join(cell_text(item) for item in _found(document, parts[at], template)))
        at += 1
    return "".join(done)


def _end_of_range(parts: list[str], begin: int, template: str) -> int:
    depth = 0
    for at in range(begin, len(parts), 2):
        depth += parts[at].startswith("range ") - (parts[at].strip() == "end")
        if not depth:
            return at
    raise _unreadable(template, "{range} has no {end}")


def _found(document: Any, expression: str, template: str) -> list[Any]:
    """The values at an expression; its root may be left out, as kubectl allows."""
    from jsonpath import JSONPathError, findall

    path = expression.strip().removeprefix("@")
    if not path.startswith("$"):
        path = f"${'.' if _ROOTLESS.match(path) else ''}{path}"
    root: Any = document
    if isinstance(document, list) and re.match(r"\$\.items\b", path):
        root = {"items": cast("list[Any]", document)}
    if path in ("$", "$."):
        return [root]
    try:
        return list(findall(path, root))
    except JSONPathError as error:
        raise _unreadable(template, str(error).splitlines()[0]) from None


def _unreadable(template: str, cause: str) -> CommandError:
    text = f"-o jsonpath={template}: {cause}"
    return CommandError("USAGE", text, "Write it as '{.name}' or '{[*].name}'; -o json shows the keys.", EXIT_USAGE)


def _items(document: Any) -> list[Any]:
    return cast("list[Any]", document) if isinstance(document, list) else [document]


def _flat(item: Any, before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in cast("Mapping[str, Any]", item).items():
        name = f"{before}{key}"
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{name}.")
        else:
            found[name] = cell_text(value)
    return found


def cell_text(value: Any) -> str:
    """A value in a cell of CSV: text as it is, nothing for null, any other value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
