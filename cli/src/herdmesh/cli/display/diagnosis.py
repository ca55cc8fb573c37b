"""Diagnosis of a connector: one sentence that says what is wrong and what will happen.

Owns the choice of the most urgent problem and its wording. Reads a connector's JSON view (`views.connector`) and
nothing else; the causes themselves are the services' own texts. Invariant: every connector has exactly one diagnosis,
and the texts that it quotes are in `quotes`, so that a caller prints no message twice. Lists show the same problem as
the sentence: `attention` has it in fewer words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from herdmesh.cli.display.output import age, count
from herdmesh.cli.display.views import Json

_FAILED: Final = re.compile(r"^failed \((\w+)\)[:;] ")
_ONE_TASK: Final = re.compile(r"`herd restart (\S+) --task \d+`")
_TARGETS: Final = {
    "PAUSED": "paused: its tasks keep their positions and move no records until `herd resume {name}`",
    "STOPPED": "stopped: it has no tasks, and keeps its config and offsets until `herd resume {name}`",
}


class Level(StrEnum):
    """How urgent a diagnosis is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a connector and what will happen."""

    level: Level
    sentence: str
    """One line for an operator; begins with the connector's name."""
    quotes: frozenset[str] = frozenset()
    """Messages of the connector's units that the sentence has already."""

    def to_json(self) -> Json:
        """The diagnosis for programs."""
        return {"level": self.level.value, "sentence": self.sentence}


def diagnose(connector: Json) -> Diagnosis:
    """The diagnosis of a connector."""
    for problem in (_failed, _restarting, _stalled, _waiting, _not_running, _explained):
        found = problem(connector)
        if found is not None:
            return found
    return _as_wanted(connector)


def attention(connector: Json) -> str:
    """The most urgent problem of a connector or its tasks, in one line; empty = no problem."""
    failed = _units(connector, lambda unit: unit["state"] == "FAILED" and bool(first_problem(unit)))
    if failed:
        return f"{_who(connector, failed)} failed: {first_problem(failed[0])}"
    restarting = _units(connector, lambda unit: unit["state"] == "RESTARTING" and bool(first_problem(unit)))
    units = restarting or _units(connector, lambda unit: bool(first_problem(unit)))
    if not units:
        return ""
    first = first_problem(units[0])
    alike = [unit for unit in units if first_problem(unit) == first]
    return f"{_who(connector, alike)}: {first}" if "id" in units[0] else first


def first_problem(unit: Json) -> str:
    """The first line of a unit's error or explanation; empty = no problem."""
    return one_line(str(unit.get("error") or unit.get("explanation") or ""))


def _failed(connector: Json) -> Diagnosis | None:
    units = _units(connector, lambda unit: unit["state"] == "FAILED")
    if not units:
        return None
    errors = list(dict.fromkeys(unit.get("error", "") for unit in units))
    several = f" for {len(errors)} different reasons, the first" if len(errors) > 1 else ""
    cause = one_line(errors[0]) or "its worker reported no reason"
    said, quotes = _what_follows(connector["name"], units)
    sentence = f"{connector['name']}: {_who(connector, units)} failed{several}: {_ended(cause)} {said}"
    return Diagnosis(Level.ERROR, sentence, frozenset((errors[0], *quotes)))


def _what_follows(name: str, units: Sequence[Json]) -> tuple[str, list[str]]:
    """The next step of failed units, and the explanations that it replaces."""
    explained = [str(unit.get("explanation", "")) for unit in units]
    first = next((text for text in explained if text), "")
    if not first:
        return f"`herd restart {name} --include-tasks --only-failed` starts it again.", []
    text = _FAILED.sub("", first)
    if len(units) > 1:
        text = _ONE_TASK.sub(r"`herd restart \1 --include-tasks --only-failed`", text)
    if "auto_restart" in units[0] and not units[0]["auto_restart"]["next_time"] and "restart" not in text:
        text = f"no automatic restart: {text}"
    return _ended(text[:1].upper() + text[1:]), explained


def _restarting(connector: Json) -> Diagnosis | None:
    units = _units(connector, lambda unit: unit["state"] == "RESTARTING")
    if not units:
        return None
    restart: Json = units[0].get("auto_restart") or {}
    attempt = f" ({restart['attempt']} of {restart['attempts_max']})" if restart.get("attempt") else ""
    last = str(restart.get("last_error") or "")
    after = f" after: {one_line(last)}" if last else ""
    sentence = f"{connector['name']}: {_who(connector, units)} is being restarted{attempt}{after}"
    explained = [unit.get("explanation", "") for unit in units]
    return Diagnosis(Level.WARNING, _ended(sentence), frozenset((last, *explained)))


def _stalled(connector: Json) -> Diagnosis | None:
    return _with_condition(connector, "STALLED", "makes no progress")


def _with_condition(connector: Json, kind: str, does: str) -> Diagnosis | None:
    units = _units(connector, lambda unit: any(one["type"] == kind for one in unit.get("conditions", ())))
    if not units:
        return None
    message = next(one["message"] for one in units[0]["conditions"] if one["type"] == kind)
    sentence = f"{connector['name']}: {_who(connector, units)} {does}: {one_line(message)}"
    return Diagnosis(Level.WARNING, _ended(sentence), frozenset((message,)))


def _waiting(connector: Json) -> Diagnosis | None:
    units = _units(connector, lambda unit: bool(_waits(unit)))
    if not units:
        return None
    waits = sorted((wait for unit in units for wait in _waits(unit)), key=lambda one: one["since"] or "")
    wait, targets = waits[0], {one["waits_for"] for one in waits}
    notes = [f"for {age(wait['since'])}"] if wait["since"] else []
    notes += [f"{wait['tries']} {'try' if wait['tries'] == 1 else 'tries'}"] if wait["tries"] else []
    others = f" (and {len(targets) - 1} more)" if len(targets) > 1 else ""
    noted = f" ({', '.join(notes)})" if notes else ""
    again = f"; it tries again at {wait['next_time']}" if wait["next_time"] else ""
    verb = "waits" if len(units) == 1 else "wait"
    sentence = (
        f"{connector['name']}: {_who(connector, units)} {verb} for {wait['waits_for']}{others}{noted}{again}. "
        "Nothing is lost, and it continues by itself once that is there."
    )
    return Diagnosis(Level.WARNING, sentence)


def _waits(unit: Json) -> list[Json]:
    return [one["wait"] for one in unit.get("conditions", ()) if "wait" in one]


def _not_running(connector: Json) -> Diagnosis | None:
    """Units that are to run and that no worker runs."""
    if connector["target_state"] not in ("", "STARTED"):
        return None
    units = _units(connector, lambda unit: unit["state"] == "UNASSIGNED")
    if not units:
        return None
    why = units[0].get("explanation", "")
    does = "does" if len(units) == 1 else "do"
    cause = f": {one_line(why)}" if why else ""
    return Diagnosis(
        Level.WARNING, _ended(f"{connector['name']}: {_who(connector, units)} {does} not run{cause}"), frozenset((why,))
    )


def _explained(connector: Json) -> Diagnosis | None:
    units = _units(connector, lambda unit: bool(unit.get("explanation")))
    if not units:
        return None
    why = units[0]["explanation"]
    return Diagnosis(
        Level.WARNING, _ended(f"{connector['name']}: {_who(connector, units)}: {one_line(why)}"), frozenset((why,))
    )


def _as_wanted(connector: Json) -> Diagnosis:
    name, tasks = connector["name"], connector["tasks"]
    if target := _TARGETS.get(connector["target_state"]):
        return Diagnosis(Level.OK, f"{name} is {target.format(name=name)}.")
    if not tasks:
        return Diagnosis(
            Level.WARNING, f"{name} runs without tasks: its connector found no work for one, so no records move."
        )
    lag = connector.get("behind_records")
    behind = f", {count(lag)} records behind" if lag else ""
    of = "its task is" if len(tasks) == 1 else f"all {len(tasks)} tasks are"
    return Diagnosis(Level.OK, f"{name} runs as wanted: {of} RUNNING{behind}.")


def _units(connector: Json, keeps: Callable[[Json], bool]) -> list[Json]:
    return [unit for unit in (connector["connector"], *connector["tasks"]) if keeps(unit)]


def _who(connector: Json, units: Iterable[Json]) -> str:
    """`the connector`, `task 3`, `all 4 tasks`, `2 of 4 tasks`."""
    numbers = [unit["id"] for unit in units if "id" in unit]
    of = len(connector["tasks"])
    if not numbers:
        return "the connector"
    if len(numbers) == 1:
        return f"task {numbers[0]}" if of == 1 else f"task {numbers[0]} of {of}"
    return f"all {of} tasks" if len(numbers) == of else f"{len(numbers)} of {of} tasks"


def one_line(text: str) -> str:
    """The first line of a text without blanks around it."""
    return next(iter(text.strip().splitlines()), "")


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
