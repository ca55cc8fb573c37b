"""Lines that report the changes of connectors, for output that is read line by line: `herd run`, and `herd up` in a
pipe.

Owns the summary of a connector in one line, and the comparison with what was reported before. Prints nothing.
"""

from __future__ import annotations

from rich.markup import escape

from herdmesh.cli.display import views
from herdmesh.cli.display.output import colored


class ConnectorLines:
    """The changes of connectors since they were last reported."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def change(self, name: str, connector: views.Json | None) -> tuple[str, views.Json] | None:
        """The line (markup) and the JSON event of a change of state; None when the line would be the same as before.
        `connector` None = it was deleted.
        """
        if connector is None:
            if self._reported.pop(name, None) is None:
                return None
            return f"[bold]{escape(name)}[/] deleted", {"event": "deleted", "name": name}
        states = [task["state"] for task in connector["tasks"]]
        own: str = connector["connector"]["state"]
        running = states.count("RUNNING")
        word = "FAILED" if "FAILED" in (own, *states) else own
        summary = f"{colored(word)}, {running} of {len(states)} tasks running"
        errors = [one["error"] for one in (connector["connector"], *connector["tasks"]) if one.get("error")]
        if errors and word == "FAILED":
            summary += f": {escape(errors[0])}"
        if self._reported.get(name) == summary:
            return None
        self._reported[name] = summary
        document: views.Json = {"event": "connector", "name": name, "state": word, "tasks": states}
        if errors:
            document["error"] = errors[0]
        return f"[bold]{escape(name)}[/] {summary}", document
