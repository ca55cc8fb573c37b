"""Reference page of the findings of `herd doctor`. Owns its form; the texts are in `herdmesh.cli.doctor.codes`."""

from __future__ import annotations

from herdmesh.cli.doctor.codes import CODES, PAGE

_INTRODUCTION = """\
# Findings of `herd doctor`

`python -m website --pages` writes this page from the code; a test compares.

`herd doctor` examines connectors, tasks, workers, stores, the herder, the supervisor of `herd up`, Kafka, versions,
clocks and disks at once. Each finding has a code, which never changes its meaning, and a next step; `herd doctor
--explain CODE` prints an entry of this page, and `-o json` has all findings with `code`, `severity`, `part`, `name`,
`message`, `next_step` and `page`, those of connectors and tasks also with `connector`, `task` and `since`.

The exit code is 1 when there is an *error*: something that should work does not. A *warning* heals by itself, or may
become an error; with warnings alone the exit code is 0, so that a database that is down for an hour wakes nobody twice.
"""


def pages() -> dict[str, str]:
    """Path below the repository -> text."""
    lines = [_INTRODUCTION]
    for name, code in sorted(CODES.items()):
        lines += [f"## {name}", "", f"*{code.severity}, {code.subject}*", "", code.meaning, ""]
        lines += [f"**Next step**: {code.next_step}", ""]
    return {PAGE: "\n".join(lines)}
