"""The findings of `herd doctor` for people: causes before their effects, and findings of one cause together.

Owns their order and grouping, and the text of a group. Judges nothing: `herdmesh.cli.doctor` does, and `-o json` has
every finding by itself. Invariant: every finding is in exactly one group, and a group's text names the severity, the
code, all that have it (on a terminal of many the first), and one next step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.markup import escape

from herdmesh.cli.display.views import Json

#: On a terminal a group names this many connectors or tasks.
_NAMED_MAX: Final = 3
#: The parts in which a cause shows before its effects elsewhere. Others follow, connectors last.
_ORDER: Final = ("kafka", "disk", "supervisor", "service", "config-store", "status-store", "herder", "worker", "mesh")
_FAILED: Final = re.compile(r"^failed \(\w+\)[:;] ")
_ONE_TASK: Final = re.compile(r"`herd restart (\S+) --task \d+`")


@dataclass(slots=True)
class FindingGroup:
    """Findings with one code and one cause, in their order."""

    findings: list[Json] = field(default_factory=list[Json])

    @property
    def first(self) -> Json:
        """The finding whose message is shown: of a wait the one that lasts longest."""
        return min(self.findings, key=lambda one: one.get("since") or "~")

    def head(self, *, brief: bool) -> str:
        """Code, subject, message and the begin of a wait; `brief` = not all names."""
        first = self.first
        since = f" (since {first['since']})" if first["code"] == "WAITING" and first.get("since") else ""
        return f"{first['code']} {self._subject(brief=brief)}: {first['message']}{since}"

    def next_step(self) -> str:
        """One next step for all; where several tasks failed, the command that restarts them together."""
        steps = list(dict.fromkeys(one["next_step"] for one in self.findings))
        text = steps[0]
        if (said := _FAILED.match(text)) is not None:
            text = text[said.end() :][:1].upper() + text[said.end() + 1 :]
        if len(steps) > 1 and len(self._connectors()) == 1:
            text = _ONE_TASK.sub(r"`herd restart \1 --include-tasks --only-failed`", text)
        elif len(steps) > 1:
            text = "For each: " + _ONE_TASK.sub(r"`herd restart NAME --include-tasks --only-failed`", text)
        return text

    def _connectors(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for one in self.findings:
            found.setdefault(one["connector"], []).extend([] if one["task"] is None else [one["task"]])
        return found

    def _subject(self, *, brief: bool) -> str:
        one = self.first
        if one["part"] != "connector":
            part = "disk of" if one["part"] == "disk" else one["part"]
            return part if one["name"] == "-" else f"{part} {one['name']}"
        connectors = self._connectors()
        if len(connectors) == 1:
            ((name, tasks),) = connectors.items()
            if len(tasks) < 2:
                return str(one["name"])
            return f"connector {name} tasks {_named(map(str, sorted(tasks)), brief=brief)}"
        tasks_text = f", {len(self.findings)} tasks" if any(connectors.values()) else ""
        return f"{len(connectors)} connectors{tasks_text} ({_named(sorted(connectors), brief=brief)})"


def grouped(findings: Iterable[Json]) -> list[FindingGroup]:
    """The findings in groups, errors first, in each severity causes before effects."""
    groups: dict[tuple[str, ...], FindingGroup] = {}
    for one in findings:
        groups.setdefault(_cause(one), FindingGroup()).findings.append(one)
    return sorted(groups.values(), key=lambda group: (group.first["severity"] != "error", _rank(group.first["part"])))


def lines_of(group: FindingGroup, style: str) -> Iterator[tuple[str, str | None]]:
    """Markup of each line of a group for a pipe, and of its brief form for a terminal."""
    severity = group.first["severity"]

    def line(text: str) -> str:
        code, _, rest = text.partition(" ")
        return f"[{style}]{severity} {code}[/] {escape(rest)}"

    yield line(group.head(brief=False)), line(group.head(brief=True))
    yield f"[dim]next:[/] {escape(group.next_step())}", None


def _rank(part: str) -> int:
    return _ORDER.index(part) if part in _ORDER else len(_ORDER)


def _cause(one: Json) -> tuple[str, ...]:
    """Equal for findings of one cause. A wait's message has its tries, which differ; its target and reason do not."""
    if one["part"] != "connector":
        return (one["code"], one["part"], one["name"], one["message"])
    wait = one.get("wait")
    if wait is not None:
        return (one["code"], wait["waits_for"], wait["message"] or "")
    kind = "connector" if one["task"] is None else "task"
    return (one["code"], kind, one["message"])


def _named(names: Iterable[str], *, brief: bool) -> str:
    listed: Sequence[str] = list(names)
    more = len(listed) - _NAMED_MAX
    if not brief or more <= 1:
        return ", ".join(listed)
    return f"{', '.join(listed[:_NAMED_MAX])} and {more} more"
