"""Plans: `PlanConfig`, the effect of a create or an update with a config, without carrying it out.

Owns the stages of such a call (validate, request task configs, compare) and the comparison. Does not repeat the rules
of the comparison: `task_sets.differs` says whether a set differs, `handover.matches` what may be kept,
`placement.places` where units go. `plan_notes.py` has the notes for the operator besides the units.

Effect of a config write (docs/reference/connect/herder.md, section 4.3): the connector and all its tasks restart when
the config changed. An equal config is not written, so that nothing restarts (docs/reference/differences.md; Connect
restarts the connector). A connector that is PAUSED or STOPPED creates no task configs until it is resumed.

Invariant: planning changes nothing but the call; a plan is correct for the moment of its creation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from herdmesh.herder.state.calls import plan_notes
from herdmesh.herder.state.calls.connector_names import checked_name, given_name, own_name
from herdmesh.herder.state.calls.handler import RequestHandler
from herdmesh.herder.state.calls.validations import request_validation
from herdmesh.herder.state.memory import (
    Call,
    CallStage,
    Command,
    HerderMemory,
    Unit,
)
from herdmesh.herder.state.model import NAME_KEY, ConnectorEntry
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.model.requests import Answer, PlanAction, PlanConfig, Planned, PlanStep
from herdmesh.herder.state.units import handover, lifecycle, placement, task_sets
from herdmesh.herder.state.workers import commands, plugin_eligibility
from herdmesh.session.model import Failure, Properties, TargetState, UnitId
from herdmesh.session.worker_commands import PlanTaskConfigs, ValidateOnWorker

EQUAL_CONFIG = "The stored config is equal: applying it changes nothing."


@dataclass(frozen=True)
class PlanHandler(RequestHandler):
    """Plans of a config."""

    request: PlanConfig

    def begin(self, memory: HerderMemory, call: Call) -> Answer | None:
        """Check the name and have the config validated. Raises as a create does."""
        config = self.request.config
        given = config.get(NAME_KEY)
        written = self.request.name or (given if isinstance(given, str) else "")
        call.name = checked_name(written and given_name(memory.stores, written))
        named = {**config, NAME_KEY: own_name(config, call.name)}
        request_validation(memory, call, named, verdict_only=False)
        return None

    def on_reply(self, memory: HerderMemory, call: Call, command: Command, reply: CommandReplied) -> Answer | None:
        """A worker validated the config, or created task configs."""
        assert call.config is not None
        before = memory.stores.entries.get(call.name)
        entry = _after(before, call.name, call.config)
        if isinstance(command.body, PlanTaskConfigs):
            return _planned(memory, call, before, entry, reply.tasks, reply.failure)
        call.validation = commands.verdict(reply)
        if call.validation.violations:
            return Planned(call.validation, notes=("The config is refused: nothing would change.",))
        if before is not None and before.has_config and before.config == entry.config:
            return Planned(call.validation, _kept(memory, call.name), (EQUAL_CONFIG,))
        if entry.wanted_state is not TargetState.STARTED:
            return _planned(memory, call, before, entry, None, None)
        call.stage = CallStage.PLANNING
        commands.send_to_able_worker(memory, call, PlanTaskConfigs(entry.config, entry.tasks_max))
        return None

    def on_worker_lost(self, memory: HerderMemory, call: Call, command: Command) -> Answer | None:
        """Send the command to another worker."""
        assert isinstance(command.body, ValidateOnWorker | PlanTaskConfigs)
        commands.send_to_able_worker(memory, call, command.body)
        return None


def _after(before: ConnectorEntry | None, name: str, config: Properties) -> ConnectorEntry:
    """The entry that would be stored. It has no revision, because the new config has none yet."""
    if before is None or not before.has_config:
        return ConnectorEntry(name, config=config, incarnation="planned")
    return replace(before, config=config, config_revision=None, foreign=False)


def _planned(
    memory: HerderMemory,
    call: Call,
    before: ConnectorEntry | None,
    entry: ConnectorEntry,
    made: tuple[Properties, ...] | None,
    failure: Failure | None,
) -> Planned:
    """Compare the units now with the planned ones. `made` None = no task configs are created in this target state."""
    assert call.validation is not None
    known = memory.inventory.connectors.get(call.name)
    units = {unit.id: unit for unit in known.units.values()} if known is not None else {}
    runs = any(lifecycle.able(memory.fleet, entry, worker_id) for worker_id in memory.fleet.members)
    if made is not None and failure is None:
        failure = task_sets.too_many(entry, made)
    if made is not None and failure is None and runs and task_sets.differs(entry, made):
        after = _committed(entry, made)
    else:
        after = entry
    # A move because of other plugins happens under the old task set.
    other_plugins = before is not None and plugin_eligibility.needs(before) != plugin_eligibility.needs(entry)
    begun = placement.places(memory, entry, _wanted(entry)) if other_plugins and after is not entry else None
    entry, wanted = after, _wanted(after)
    places = placement.places(memory, entry, wanted, begun)
    steps = [
        _step(entry, unit_id, units.get(unit_id), places)
        for unit_id in sorted({*wanted, *units}, key=lambda unit_id: unit_id.order)
    ]
    others = sorted(str(unit_id) for unit_id in places if unit_id.connector != call.name)
    notes = plan_notes.notes(memory.step, memory.fleet, before, entry, made, failure, runs=runs, others=others)
    return Planned(call.validation, tuple(step for step in steps if step is not None), tuple(notes))


def _wanted(entry: ConnectorEntry) -> list[UnitId]:
    tasks = range(len(entry.tasks)) if handover.tasks_wanted(entry) else ()
    return [UnitId(entry.name), *(UnitId(entry.name, task) for task in tasks)]


def _committed(entry: ConnectorEntry, made: tuple[Properties, ...]) -> ConnectorEntry:
    """The entry with the new task set; no task of an older one matches it."""
    return replace(
        entry,
        tasks=made,
        task_digests=("planned",) * len(made),
        task_count=len(made),
        inconsistent=False,
        applied_config=entry.config,
        task_set_version=entry.task_set_version + 1,
    )


def _step(
    entry: ConnectorEntry, unit_id: UnitId, unit: Unit | None, places: Mapping[UnitId, str | None]
) -> PlanStep | None:
    """The step from a unit's place now to its planned place; None when it has none in both."""
    hold = unit.placement if unit is not None else None
    place = places.get(unit_id)
    task = unit_id.task
    if hold is None:
        if place is None:
            return None
        return PlanStep(task, PlanAction.START, f"it would run on {place}", place)
    if not handover.is_wanted(entry, unit_id):
        return PlanStep(task, PlanAction.STOP, "it is not in the new task set")
    kept = handover.matches(entry, unit_id, hold.assignment)
    if kept and place in (None, hold.worker_id):
        return PlanStep(task, PlanAction.KEEP, f"it continues without a restart on {hold.worker_id}", hold.worker_id)
    if place is None:
        return PlanStep(task, PlanAction.STOP, "its config changed, and no worker could take it")
    why = "the balance or its plugin requires another worker" if kept else _why_restarted(task)
    where = f"stays on {place}" if place == hold.worker_id else f"moves from {hold.worker_id} to {place}"
    return PlanStep(task, PlanAction.RESTART, f"{why}; {where}", place)


def _why_restarted(task: int | None) -> str:
    if task is None:
        return "a config that is written restarts its connector"
    return "the connector's config changed, which restarts all tasks"


def _kept(memory: HerderMemory, name: str) -> tuple[PlanStep, ...]:
    """Steps that keep all units of a connector, in their order."""
    known = memory.inventory.connectors.get(name)
    placed = [(unit.id, unit.placement) for unit in known.units.values() if unit.placement] if known else []
    return tuple(
        PlanStep(
            unit_id.task,
            PlanAction.KEEP,
            f"it continues without a restart on {placement.worker_id}",
            placement.worker_id,
        )
        for unit_id, placement in sorted(placed, key=lambda one: one[0].order)
    )
