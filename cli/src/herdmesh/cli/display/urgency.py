"""Order and number of the connectors that need attention, for lists that are longer than a screen.

Owns the order by urgency and the summary. The judgement of one connector is `diagnosis`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from rich.markup import escape

from herdmesh.cli.display.diagnosis import Level, diagnose
from herdmesh.cli.display.views import Json

_NAMED_MAX: Final = 3
_ORDER: Final = (Level.ERROR, Level.WARNING, Level.OK)


def by_urgency(connectors: Iterable[Json]) -> list[tuple[Level, Json]]:
    """The connectors with their levels: those with errors first, then warnings, each by name."""
    judged = [(diagnose(one).level, one) for one in connectors]
    return sorted(judged, key=lambda one: (_ORDER.index(one[0]), one[1]["name"]))


def summary(connectors: Sequence[Json]) -> Json:
    """Numbers of connectors by level, the names of some with errors, and numbers of tasks by state."""
    judged = by_urgency(connectors)
    levels = Counter(level for level, _ in judged)
    states = Counter(task["state"] for one in connectors for task in one["tasks"])
    return {
        "connectors": len(connectors),
        "errors": levels[Level.ERROR],
        "worst": [one["name"] for level, one in judged[:_NAMED_MAX] if level is Level.ERROR],
        "warnings": levels[Level.WARNING],
        "tasks": dict(states.most_common()),
    }


def summary_line(counts: Json) -> str:
    """The summary as one line of markup, the worst first: `1 with errors (orders), 3 with warnings, 296 of 300
    connectors as wanted; tasks: 590 running, 4 failed`.
    """
    named = escape(", ".join(counts["worst"])) + (", ..." if counts["errors"] > len(counts["worst"]) else "")
    parts = [f"[bold red]{counts['errors']} with errors ({named})[/]"] if counts["errors"] else []
    parts += [f"[bold yellow]{counts['warnings']} with warnings[/]"] if counts["warnings"] else []
    well = counts["connectors"] - counts["errors"] - counts["warnings"]
    noun = "connector" if counts["connectors"] == 1 else "connectors"
    parts.append(f"{well} of {counts['connectors']} {noun} as wanted")
    tasks = ", ".join(f"{number} {state.lower()}" for state, number in counts["tasks"].items())
    return ", ".join(parts) + (f"; tasks: {tasks}" if tasks else "")
