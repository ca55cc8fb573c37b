"""Effects of the tasks' runs on Kafka, reduced to ownership: each task's id is a transactional id.

Owns who may write under each id (`init_transactions` fences every earlier owner, who learns it at its next write), and
the fake runs: processes that start, take over, verify their claim in the config topic by the product's own rule, run,
and end well, badly, silently, or not at all. A run outlives its worker's process for a moment, and continues while
the worker is frozen.

Invariant: a run is an owner from its take-over until it ends or is fenced, and moves records only while it is one and
after its claim was verified; the checks are notified of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.topics.commit_scope import CommitScope
from herdmesh.engine.fencing import task_set_check
from herdmesh.engine.runtime.contract import PartitionProgress, ProgressReport, RunEnd, TaskSetClaim
from herdmesh.session.model import Assignment, Failure, UnitId
from herdmesh.worker.state import events, instructions
from tests.sim.mesh.offsets import ConnectorOffsets

if TYPE_CHECKING:
    from tests.sim.mesh.worker import WorkerProcess
    from tests.sim.mesh.world import World

_PROGRESS = ProgressReport(
    records_in=1, commit_scope=CommitScope("connect", ("t",)), partitions=(PartitionProgress("t", 0, 1, 1, 1),)
)
_QUIET_MS = 5_000
#: a fifth as often as a real one, to keep histories short; a third of the time after which a worker counts it as
#: STALLED.
_PULSE_MS = 10_000


class Fate(Enum):
    """Behaviour of a run, unless it is stopped."""

    RUNS = "runs"
    GOES_QUIET = "goes quiet"
    FAILS = "fails"
    IS_LOST = "is lost"
    STARTS_LATE = "starts late"
    NEVER_STOPS = "never stops"


class Run:
    """One run. Its process is independent of the worker, which only gets its messages."""

    def __init__(self, world: World, worker: WorkerProcess, submitted: instructions.SubmitRun) -> None:
        self.world = world
        self.worker = worker
        self.worker_life = worker.life
        self.run_id = submitted.run_id
        self.unit = submitted.unit
        held = worker.state.tasks.get(submitted.unit)
        assert held is not None
        self.assignment: Assignment = held.assignment
        assert submitted.config_offset is not None, "the leader said what it had read"
        self.claim = TaskSetClaim(
            "config", submitted.config_offset, submitted.assignment.incarnation, submitted.assignment.task_digest
        )
        self.always = submitted.spec.connector_config.get("always")
        self.fate = self._fate()
        #: its behaviour when it has nothing to do.
        self.stays_warm = world.rng.random() < 0.5
        self.progress = _PROGRESS
        self.owns = False
        #: its claim was verified: it may move records while it owns its id.
        self.moves = False
        self.stopping = False
        self.over = False
        self._later(world.rng.randint(5, 60) if world.rng.random() < 0.9 else world.rng.randint(60, 900), self._begin)

    @property
    def task_set(self) -> tuple[str, str]:
        """Its task set: incarnation and generation of the set."""
        return (self.assignment.incarnation, self.assignment.task_digest.partition(":")[0])

    @property
    def task_id(self) -> tuple[str, int]:
        return (self.unit.connector, self.unit.task or 0)

    def __str__(self) -> str:
        order = self.assignment
        return f"run {self.run_id} of {self.unit} (epoch {order.epoch}, generation {order.generation})"

    def stop(self) -> None:
        """Command it to commit and end. A process that has not started gets the command when it starts."""
        self.stopping = True
        if self.moves and self.owns and self.fate is not Fate.NEVER_STOPS:
            self._later(self.world.rng.randint(2, 80), self._stopped)

    def rest(self) -> None:
        """Command it to end if it is warm."""
        self.stays_warm = False
        self._later(self.world.rng.randint(1, 200), self._quiet)

    def kill(self) -> None:
        """Kill its process."""
        self._later(self.world.rng.randint(1, 50), lambda: self._end("killed"))

    def orphan(self) -> None:
        """Its worker's process has ended; it follows soon."""
        self._later(self.world.rng.randint(0, 3_000), lambda: self._end("its worker died"))

    def fence(self) -> None:
        """Another process initialised its id: it may not write any more, and learns it at its next write."""
        if not self.owns:
            return
        self.owns = False
        failure = Failure("fenced by a newer owner", error_class=ErrorClass.FENCED)
        self._later(self.world.rng.randint(20, 1_000), lambda: self._fail(failure))

    # --- its life

    def _fate(self) -> Fate:
        if self.always:
            return Fate.FAILS
        if not self.world.network.unruly:
            return Fate.RUNS
        draw = self.world.rng.random()
        for fate, share in ((Fate.GOES_QUIET, 0.2), (Fate.FAILS, 0.05), (Fate.IS_LOST, 0.05), (Fate.STARTS_LATE, 0.01)):
            if draw < share:
                return fate
            draw -= share
        return Fate.NEVER_STOPS if draw < 0.02 else Fate.RUNS

    def _begin(self) -> None:
        if self.fate is Fate.STARTS_LATE:
            self.fate = Fate.RUNS
            self._later(self.world.rng.randint(8_000, 40_000), self._begin)
            return
        if not self._reaches_broker(self._begin):
            return
        self._say(events.RunHello(self.run_id, 1))
        self._pulse()
        self.world.dataplane.take_over(self)
        rng = self.world.rng
        self._later(rng.randint(1, 15) if rng.random() < 0.9 else rng.randint(15, 800), self._verify)

    def _pulse(self) -> None:
        """Report progress of its loop, also while it waits for a broker (`engine.runtime.progress_ticks`)."""
        self._say(events.RunLiveness(self.run_id, 0, 0))
        self._later(_PULSE_MS, self._pulse)

    def _verify(self) -> None:
        """Do the work of `engine.fencing.task_set_check`: read the config topic from the claim's position to its
        end.
        """
        if not self.owns or not self._reaches_broker(self._verify):
            return
        log = self.world.config_log
        manifest = log.manifest_since(self.unit.connector, self.claim.offset)
        if manifest is not None and task_set_check.contradicts(manifest, self.claim, self.unit.task or 0):
            self.world.checker.counts["runs of a task set not in force any more"] += 1
            self.world.trace("data", "%s finds a newer task set", self)
            self._fail(Failure("its task set is not in force any more", error_class=ErrorClass.FENCED))
            return
        self.moves = True
        self.world.dataplane.offsets.begins(self)
        self.progress = replace(_PROGRESS, config_offset=log.revision.next_offsets[0])
        self.world.checker.moves_records(self)
        self._say(events.RunProgress(self.run_id, self.progress))
        if self.stopping:
            self.stop()
        elif self.fate is Fate.GOES_QUIET:
            self._later(_QUIET_MS, self._quiet)
        elif self.fate is Fate.FAILS:
            name = self.always or self.world.rng.choice(("RETRIABLE", "FATAL", "BAD_CONFIG", "UNKNOWN", "DATA_LOSS"))
            failure = Failure(f"the task failed: {name}", "a trace", ErrorClass[name])
            self._later(self.world.rng.randint(50, 3_000), lambda: self._goes_wrong(lambda: self._fail(failure)))
        elif self.fate is Fate.IS_LOST:
            self._later(self.world.rng.randint(50, 3_000), lambda: self._goes_wrong(lambda: self._end("exit code 137")))

    def _goes_wrong(self, deed: Callable[[], None]) -> None:
        """Fail at random, but not once the faults are over."""
        if self.always or self.world.network.unruly:
            deed()

    def _quiet(self) -> None:
        # A run without a reachable broker is not idle, and commits nothing.
        if self.stopping or not self._reaches_broker(self._quiet):
            return
        if self.stays_warm:
            self._say(events.RunProgress(self.run_id, replace(self.progress, warm=True)))
            return
        self._say(events.RunFinished(self.run_id, RunEnd.QUIET, self.progress, 0))
        self._end(None)

    def _stopped(self) -> None:
        if self._reaches_broker(self._stopped):
            self._say(events.RunFinished(self.run_id, RunEnd.STOPPED, self.progress, 0))
            self._end(None)

    def _fail(self, failure: Failure) -> None:
        self._say(events.RunFailed(self.run_id, failure))
        self._end(None)

    def _end(self, error: str | None) -> None:
        if self.over:
            return
        self.over = True
        self.world.dataplane.ended(self)
        self._say(events.RunEnded(self.run_id, error))

    def _say(self, event: events.Event) -> None:
        self.worker.take(self.worker_life, lambda: self.worker.handle(event))

    def _reaches_broker(self, deed: Callable[[], None]) -> bool:
        return self.world.broker.when_there(lambda: None if self.over else deed())

    def _later(self, ms: int, deed: Callable[[], None]) -> None:
        self.world.scheduler.at(self.world.now + ms, lambda: None if self.over else deed())


class DataPlane:
    """Kafka's transaction coordinator, for tasks' ids only."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.owners: dict[tuple[str, int], list[Run]] = {}
        self.offsets = ConnectorOffsets(world)

    def take_over(self, run: Run) -> None:
        """`init_transactions` of a run."""
        self.fence(run.task_id)
        self.owners.setdefault(run.task_id, []).append(run)
        run.owns = True
        self._world.checker.took_over(run)

    def fence(self, task_id: tuple[str, int]) -> None:
        """Fence the current owner of the id: it may not write under it any more."""
        self.offsets.fence(task_id)
        for owner in self.owners.pop(task_id, []):
            owner.fence()

    def ended(self, run: Run) -> None:
        run.owns = False
        owners = self.owners.get(run.task_id, [])
        if run in owners:
            owners.remove(run)
            if not owners:
                del self.owners[run.task_id]

    def all_owners(self) -> list[Run]:
        return [run for owners in self.owners.values() for run in owners]


def task_unit(task_id: tuple[str, int]) -> UnitId:
    return UnitId(*task_id)
