"""The requests of a user with many connectors, and the tables of what they cost.

Owns the order of the steps and the rows; knows neither cluster. Invariant: each step begins when the one before has had
its whole effect, so that a step's time and processor time are its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.herder.figures import sink
from bench.many.clusters import Configs, Many
from bench.table import Row
from bench.usage import cpu_s

CREATE, UNCHANGED, CHANGED, DELETE = "create", "apply unchanged", "one key changed in all", "delete"
STEPS = (CREATE, UNCHANGED, CHANGED, DELETE)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of the call and until its whole effect, both from its begin; processor time by kind until the effect.
    `effect_s` None = the cluster does not show it.
    """

    call_s: float
    effect_s: float | None
    cpu_s: Mapping[str, float]


@dataclass(slots=True)
class Answers:
    """What one side took for one number of connectors."""

    steps: dict[str, Step] = field(default_factory=dict[str, Step])
    memory_mb: dict[str, float] = field(default_factory=dict[str, float])
    idle_cores: float = 0.0
    idle_all_cores: float = 0.0


async def ask(many: Many, folder: Path, size: int, idle_s: float, say: Callable[[str], None]) -> Answers:
    """Create so many connectors, apply them unchanged, change one key of each, delete them. Sinks write into
    `folder`.
    """
    names = [f"many-{size}-{number}" for number in range(size)]
    first, second = ({name: sink(folder / name, stamp) for name in names} for stamp in ("0", "1"))
    answers = Answers()

    async def running(above: Mapping[str, int]) -> None:
        await many.until_running(names, above)

    async def take(name: str, *step: Any) -> None:
        took = answers.steps[name] = await _step(many, *step)
        effect = "" if took.effect_s is None else f", {took.effect_s:.1f} s until its whole effect"
        say(f"{many.side.name}, {size} connectors, {name}: {took.call_s:.2f} s{effect}")

    await take(CREATE, many.apply, first, lambda: running({}))
    await asyncio.sleep(idle_s)  # the runs end, and what was compiled or collected because of them
    before = cpu_s(many.side.control_plane()), cpu_s(many.side.everything())
    await asyncio.sleep(idle_s)
    answers.idle_cores = (cpu_s(many.side.control_plane()) - before[0]) / idle_s
    answers.idle_all_cores = (cpu_s(many.side.everything()) - before[1]) / idle_s
    answers.memory_mb = many.memory_mb()
    await take(UNCHANGED, many.apply, first, None)
    generations = many.generations()
    await take(CHANGED, many.apply, second, (lambda: running(generations)) if generations else None)
    await running({})
    await take(DELETE, many.delete, second, lambda: many.until_gone(names))
    return answers


async def _step(
    many: Many,
    call: Callable[[Configs], Awaitable[None]],
    configs: Configs,
    effect: Callable[[], Awaitable[None]] | None,
) -> Step:
    before = many.usage()
    begun_s = time.monotonic()
    await call(configs)
    call_s = time.monotonic() - begun_s
    effect_s = None
    if effect is not None:
        await effect()
        effect_s = time.monotonic() - begun_s
    return Step(call_s, effect_s, many.usage().since(before))


def rows(ours: Answers, java: Answers | None) -> list[Row]:
    """The table of one number of connectors: lower is better in every row."""
    found: list[Row] = []
    for name in STEPS:
        mine, theirs = ours.steps[name], java.steps[name] if java is not None else None
        found.append(_row(f"{name}: the call", mine.call_s, theirs and theirs.call_s, "s"))
        if mine.effect_s is not None:
            end = "nothing shown of them" if name == DELETE else "all RUNNING"
            found.append(_row(f"{name} -> {end}", mine.effect_s, theirs and theirs.effect_s, "s"))
        found.append(_row(f"{name}: processor time, broker too", _sum(mine.cpu_s), theirs and _sum(theirs.cpu_s), "s"))
    control = [kind for kind in ours.memory_mb if not kind.startswith(("worker", "broker"))]
    found += [
        _row("idle, stores and herder; Java: its workers", ours.idle_cores, java and java.idle_cores, "cores"),
        _row("idle, all processes but the broker", ours.idle_all_cores, java and java.idle_all_cores, "cores"),
        _row(
            "memory (PSS), stores and herder; Java: its workers",
            sum(ours.memory_mb[kind] for kind in control),
            java and java.memory_mb["worker"],
            "MB",
        ),
        _row(
            "memory (PSS), all processes but the broker",
            _sum(ours.memory_mb) - ours.memory_mb["broker"],
            java and java.memory_mb["worker"],
            "MB",
        ),
    ]
    return found


def kinds_table(ours: Answers, java: Answers | None) -> str:
    """Processor time in seconds of each step and memory in MB, by kind of process."""
    heads = [*STEPS, "memory, MB"]
    lines = [f"{'seconds of processor time':<26}" + "".join(f"{head:>24}" for head in heads)]
    for side, answers in (("", ours), ("Java's ", java)):
        if answers is None:
            continue
        kinds = dict.fromkeys(kind for step in answers.steps.values() for kind in step.cpu_s)
        for kind in kinds:
            cells = [f"{answers.steps[name].cpu_s.get(kind, 0.0):.2f}" for name in STEPS]
            cells.append(f"{answers.memory_mb[kind]:,.0f}" if kind in answers.memory_mb else "")
            lines.append(f"{side + kind:<26}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def _sum(values: Mapping[str, float]) -> float:
    return sum(values.values())


def _row(figure: str, ours: float, java: float | None, unit: str) -> Row:
    digits = {"cores": 3, "s": 2, "MB": 0}[unit]
    ratio = ours / java if java else None
    theirs = "-" if java is None else f"{java:,.{digits}f} {unit}"
    return Row(figure, f"{ours:,.{digits}f} {unit}", theirs, ratio)
