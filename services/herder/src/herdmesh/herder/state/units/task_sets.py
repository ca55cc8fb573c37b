"""Task sets: the steps from a running connector to tasks that may run: create configs, commit, fence, count.

Owns the order of these steps. Does not own the tasks' placement nor their starts.

A changed set is a hazard of its own: a task of the old set may still run somewhere and own partitions that the new set
gives to another number. So, in this order, each step durable before the next:
1. the connector created task configs that differ, or its config changed: CommitTaskConfigs (pending_fencing from here);
2. every task of the old set that a worker is known to have is stopped and acknowledged (`lifecycle.py`);
3. numbers that may run on an unreachable worker are fenced by another worker: 0 .. max(old, new) - 1;
4. PutTaskCount: "as many producers as this may be alive now". Only then `gate_open`, and tasks start.
Where 2 and 3 have nothing to do, whatever the old set does meanwhile (`_fenced_generation`), 4 is written with 1.
A leader that dies in between leaves pending_fencing; the next one knows from the count record which numbers to fence.

Invariant: no commit and no count of one connector are under way at the same time, and none is decided on an entry
older than the last one acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.memory import (
    Agenda,
    CallTable,
    Connector,
    Fleet,
    Generate,
    HerderMemory,
    Inventory,
    Leadership,
    Member,
    Op,
    OpKind,
    Step,
)
from herdmesh.herder.state.model import TASKS_MAX_ENFORCE_KEY, ConnectorEntry
from herdmesh.herder.state.model.instructions import CommitTasks, PutTaskCount
from herdmesh.herder.state.units.handover import matches, tasks_wanted
from herdmesh.herder.state.workers import commands
from herdmesh.rpc.errors import ConnectorNotFound, HerdmeshError, RevisionMismatch
from herdmesh.session.messages import RequestTaskConfigs
from herdmesh.session.model import Failure, Properties, RunState, TargetState
from herdmesh.session.worker_commands import FenceTasks
from herdmesh.topicstore.contract import Revision

BACKOFF_MS_FIRST = 250
BACKOFF_MS_MAX = 60_000

#: failures of task-config requests that the same config would meet again: no retry, the connector is FAILED.
_FINAL = (ErrorClass.BAD_CONFIG, ErrorClass.FATAL)


def backoff_ms(attempts: int) -> int:
    """250 ms x 2^n up to a minute (docs/reference/connect/herder.md, section 4.3)."""
    return min(BACKOFF_MS_FIRST * 2 ** min(attempts, 20), BACKOFF_MS_MAX)


def gate_open(entry: ConnectorEntry) -> bool:
    """True when tasks of the committed set may start."""
    return not entry.pending_fencing


def advance(memory: HerderMemory, connector: Connector) -> None:
    """Take the next step of this connector's task set, if one can be taken now."""
    entry = connector.stored
    if entry is None or connector.busy:
        return
    if not memory.stores.applied(connector.wait_revision):
        return
    connector.wait_revision = None
    if memory.step.now < connector.write_ms:
        return
    if entry.wanted_state is TargetState.STOPPED:
        # Request its task configs anew on resume, also when its worker never reported STOPPED in between.
        connector.generate, connector.made = Generate.WANTED, None
        if entry.tasks or entry.task_count or entry.inconsistent:
            _commit(memory.step, memory.leadership, memory.call_table, connector, entry, ())
        return
    if connector.made is not None:
        made, connector.made = connector.made, None
        if _current_holder(connector, entry) is not None and differs(entry, made):
            _commit(memory.step, memory.leadership, memory.call_table, connector, entry, made)
            return
    if connector.generate is Generate.WANTED and entry.wanted_state is TargetState.STARTED:
        _request_task_configs(memory.step, memory.fleet, connector, entry)
    if entry.pending_fencing and tasks_wanted(entry) and entry.tasks:
        _open_gate(memory, connector, entry)


def made(
    step: Step, agenda: Agenda, connector: Connector, tasks: tuple[Properties, ...], failure: Failure | None
) -> None:
    """The connector's current instance created task configs, or failed to."""
    connector.generate = Generate.NO
    entry = connector.stored
    hold = connector.unit(None).placement
    if entry is None or hold is None or not matches(entry, connector.unit(None).id, hold.assignment):
        return
    if entry.wanted_state is TargetState.STOPPED:
        # The stop overtook this reply. A failure in it would never be cleared: the worker has reported STOPPED.
        connector.generate = Generate.WANTED
        agenda.touch(connector.name)
        return
    failure = failure or too_many(entry, tasks)
    if failure is None:
        connector.made = tasks
        connector.trouble = ""
        connector.generate_attempts = 0
    elif failure.error_class in _FINAL:
        hold.state, hold.failure, hold.since_ms, hold.judged = RunState.FAILED, failure, step.now, True
    else:
        connector.trouble = failure.message
        connector.generate = Generate.WANTED
        connector.generate_ms = step.now + backoff_ms(connector.generate_attempts)
        connector.generate_attempts += 1
        agenda.wake(connector.name, connector.generate_ms)
    agenda.touch(connector.name)


def on_write_completed(agenda: Agenda, connector: Connector, revision: Revision | None) -> None:
    """A commit or count was acknowledged; the watch will bring it."""
    connector.busy = False
    connector.wait_revision = revision
    agenda.wait_for_watch(connector.name)
    connector.write_attempts = 0
    connector.trouble = ""
    agenda.touch(connector.name)


def on_write_failed(step: Step, agenda: Agenda, connector: Connector, kind: OpKind, error: HerdmeshError) -> None:
    """A commit or count was refused or its outcome is unknown. Both are safe to repeat from the watch's next state."""
    connector.busy = False
    if kind is OpKind.COMMIT and isinstance(error, RevisionMismatch | ConnectorNotFound):
        # The config moved on, and the restart of the connector creates new configs; or an abandoned commit of ours
        # took effect after all, and then the same instance creates them again.
        connector.generate = Generate.WANTED
        connector.generate_ms = step.now + BACKOFF_MS_FIRST
        agenda.wake(connector.name, connector.generate_ms)
        agenda.touch(connector.name)
        return
    if kind is OpKind.COMMIT:
        connector.generate = Generate.WANTED
    connector.trouble = f"{error.reason}: {error.message}"
    _back_off(step, agenda, connector)


def fenced(step: Step, inventory: Inventory, name: str, failure: Failure | None) -> None:
    """A worker initialised all ids that might still be in use, or failed to."""
    connector = inventory.connectors.get(name)
    if connector is None:
        return
    connector.busy = False
    if failure is None:
        connector.unfenced -= connector.fencing
        connector.trouble = ""
        connector.write_attempts = 0
        inventory.agenda.touch(name)
    else:
        connector.trouble = f"old tasks could not be fenced: {failure.message}"
        _back_off(step, inventory.agenda, connector)


def fence_again(inventory: Inventory, name: str) -> None:
    """The worker that was to fence is lost."""
    connector = inventory.connectors.get(name)
    if connector is not None:
        connector.busy = False
        inventory.agenda.touch(name)


def _request_task_configs(step: Step, fleet: Fleet, connector: Connector, entry: ConnectorEntry) -> None:
    hold = connector.unit(None).placement
    if hold is None or hold.state is not RunState.RUNNING or step.now < connector.generate_ms:
        return
    if not matches(entry, connector.unit(None).id, hold.assignment):
        return
    if fleet.send_to(hold.worker_id, RequestTaskConfigs(connector.name, hold.assignment, entry.tasks_max)):
        connector.generate = Generate.REQUESTED


def too_many(entry: ConnectorEntry, tasks: tuple[Properties, ...]) -> Failure | None:
    """The failure of a connector that created more task configs than it may; None = it did not."""
    if len(tasks) <= entry.tasks_max or entry.config.get(TASKS_MAX_ENFORCE_KEY) == "false":
        return None
    return Failure(
        f"The connector {entry.name} has generated {len(tasks)} tasks, which is greater than "
        f"{entry.tasks_max}, the maximum number of tasks it is configured to create.",
        error_class=ErrorClass.BAD_CONFIG,
    )


def differs(entry: ConnectorEntry, tasks: tuple[Properties, ...]) -> bool:
    """True when a new set is to be committed. Connect's rule (docs/reference/connect/herder.md, section 4.3): count,
    any task config, or the connector config changed."""
    if not entry.adopted or entry.inconsistent or entry.applied_config != entry.config:
        return True
    return len(entry.tasks) != len(tasks) or any(
        dict(old) != dict(new) for old, new in zip(entry.tasks, tasks, strict=True)
    )


def _commit(
    step: Step,
    leadership: Leadership,
    call_table: CallTable,
    connector: Connector,
    entry: ConnectorEntry,
    tasks: tuple[Properties, ...],
) -> None:
    connector.busy = True
    op = call_table.op(Op(OpKind.COMMIT, connector.name))
    fenced = _fenced_generation(connector, entry, tasks)
    step.emit(CommitTasks(op, connector.name, tasks, entry.config_revision, leadership.epoch, fenced))


def _fenced_generation(connector: Connector, entry: ConnectorEntry, tasks: tuple[Properties, ...]) -> int | None:
    """The task set version in force, if the next set may start unfenced whichever tasks start or are lost until then:
    no task runs nor may, or only task 0 does and the new set has one task (as in `_needs_fence`). Otherwise None:
    running tasks are stopped, or fenced, once the commit supersedes them.
    """
    if not tasks:
        return None
    may_run = {unit.id.task for unit in connector.tasks() if unit.placement is not None or unit.superseded}
    may_run.update(connector.unfenced, range(len(entry.tasks)))
    return None if _overlaps(may_run, len(tasks)) else entry.task_set_version


def _open_gate(memory: HerderMemory, connector: Connector, entry: ConnectorEntry) -> None:
    if connector.superseded_tasks:
        return  # without checking each task: this runs once for each stopped task
    for unit in connector.tasks():
        if unit.placement is not None and not matches(entry, unit.id, unit.placement.assignment):
            return
    if _needs_fence(connector, entry):
        _fence(memory, connector, entry)
        return
    connector.busy = True
    op = memory.call_table.op(Op(OpKind.COUNT, connector.name))
    memory.step.emit(PutTaskCount(op, connector.name, len(entry.tasks), memory.leadership.epoch))


def _needs_fence(connector: Connector, entry: ConnectorEntry) -> bool:
    """False when only task 0 of a set of one may still run, and the new set is of one too: the new task takes the same
    id over, which is the fence (docs/reference/connect/herder.md, section 5, record 1 and count 1).
    """
    return _overlaps(connector.unfenced, len(entry.tasks))


def _overlaps(running: Collection[int | None], count: int) -> bool:
    """True when tasks of an old set may own partitions that a task of another number owns in a new set of `count`."""
    return bool(running) and not (set(running) == {0} and count == 1)


def _fence(memory: HerderMemory, connector: Connector, entry: ConnectorEntry) -> None:
    def preference(member: Member) -> tuple[bool, bool, bool, str]:
        silent, has_class = commands.is_silent(memory.step, member), entry.class_name in member.connectors
        return (silent, not has_class, member.draining, member.worker_id)

    able = [member for member in memory.fleet.members.values() if member.session is not None]
    if not able:
        memory.agenda.wake(connector.name, memory.step.now + BACKOFF_MS_FIRST)
        return
    member = min(able, key=preference)
    task_count = max(entry.task_count_record or 0, len(entry.tasks), max(connector.unfenced) + 1)
    connector.busy = True
    connector.fencing = set(connector.unfenced)
    commands.send_for_connector(
        memory.step, memory.fleet, memory.call_table, connector.name, member, FenceTasks(connector.name, task_count)
    )


def _current_holder(connector: Connector, entry: ConnectorEntry) -> str | None:
    unit = connector.unit(None)
    if unit.placement is None or not matches(entry, unit.id, unit.placement.assignment):
        return None
    return unit.placement.worker_id


def _back_off(step: Step, agenda: Agenda, connector: Connector) -> None:
    connector.write_ms = step.now + backoff_ms(connector.write_attempts)
    connector.write_attempts += 1
    agenda.wake(connector.name, connector.write_ms)
    agenda.touch(connector.name)
