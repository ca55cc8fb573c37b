"""Pages of the guided examples: copies of those that `herd example run` runs, with a line on how to run them.

Owns the copies below docs/tutorials/examples, and their index. The pages are in `herdmesh.cli.example`.
"""

from __future__ import annotations

from herdmesh.cli.example.page import Example, examples

_FOLDER = "docs/tutorials/examples"
_WRITTEN = (
    "`python -m website --pages` writes this page from `cli/src/herdmesh/cli/example`; a test compares and runs it."
)


def pages() -> dict[str, str]:
    """Path below the repository -> text."""
    found = examples()
    return {f"{_FOLDER}/index.md": _index(found), **{f"{_FOLDER}/{one.name}.md": _page(one) for one in found}}


def _page(example: Example) -> str:
    head, summary, rest = example.page.split("\n\n", 2)
    hints = {
        "PostgreSQL": "a PostgreSQL server of its own (by hand: set PGHOST, PGPORT, PGUSER and PGDATABASE; its "
        "`wal_level` must be `logical` for CDC)",
        "an HTTP receiver": "its receiver (by hand: `python -m herdmesh.cli.example.receiver received.txt '\"qty\":-'` "
        "prints the URL for RECEIVER_URL)",
    }
    needs = "".join(f", with {hints[part]}" for part in example.needs)
    run = f"`herd example run {example.name}` runs this page on your cluster (`herd up --detach`){needs}."
    return f"{head}\n\n{summary}\n\n{run} {_WRITTEN}\n\n{rest}"


def _index(found: list[Example]) -> str:
    rows = [f"| [{one.title}]({one.name}.md) | `herd example run {one.name}` | {one.summary} |" for one in found]
    return "\n".join(
        [
            "# Guided examples",
            "",
            "Small examples that run on your cluster (`herd up --detach`). `herd example run NAME` prints each command "
            "and its output, and deletes what it created; `herd example list` lists them.",
            "",
            "| Example | Command | Shows |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )
