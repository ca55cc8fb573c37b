"""What the runs of tasks do to Kafka, as far as ownership goes: each task's id is a transactional id.

Owns who may write under each id (`init_transactions` fences every earlier owner, who notices at its next write), and
the fake runs: processes that start, take over, verify their claim in the config topic by the product's own rule, run,
and end well, badly, without a word, or not at all. A run outlives its worker's process for a moment, and runs on while
the worker stands still.

Invariant: a run is an owner from its take-over until it ends or is fenced, and moves records only while it is one and
after its claim was verified; the checks are told of each.
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
#: a fifth as often as a real one, to keep histories short; a third of what a worker calls STALLED.
_PULSE_MS = 10_000


class Fate(Enum):
    """How a run will go, unless it is told to stop."""

    RUNS = "runs"
    GOES_QUIET = "goes quiet"
    FAILS = "fails"
    IS_LOST = "is lost"
    STARTS_LATE = "starts late"
    NEVER_STOPS = "never stops"


class Run:
    """One run. Its process belongs to nobody: the worker only hears of it."""

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
        #: what it does when it has nothing to do.
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
        """Which task set it belongs to: incarnation and generation of the set."""
        return (self.assignment.incarnation, self.assignment.task_digest.partition(":")[0])

    @property
    def task_id(self) -> tuple[str, int]:
        return (self.unit.connector, self.unit.task or 0)

    def __str__(self) -> str:
        order = self.assignment
        return f"run {self.run_id} of {self.unit} (epoch {order.epoch}, generation {order.generation})"

    def stop(self) -> None:
        """It is told to commit and end. A process that has not begun hears it when it begins."""
        self.stopping = True
        if self.moves and self.owns and self.fate is not Fate.NEVER_STOPS:
            self._later(self.world.rng.randint(2, 80), self._stopped)

    def rest(self) -> None:
        """Told to keep no slot for nothing."""
        self.stays_warm = False
        self._later(self.world.rng.randint(1, 200), self._quiet)

    def kill(self) -> None:
        """Its process is killed."""
        self._later(self.world.rng.randint(1, 50), lambda: self._end("killed"))

    def orphan(self) -> None:
        """Its worker's process is gone; it follows soon."""
        self._later(self.world.rng.randint(0, 3_000), lambda: self._end("its worker died"))

    def fence(self) -> None:
        """Somebody else initialised its id: it may not write any more, and learns it at its next write."""
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
        """Its loop moves, also while it waits for a broker (`engine.runtime.progress_ticks`)."""
        self._say(events.RunPulse(self.run_id, 0, 0))
        self._later(_PULSE_MS, self._pulse)

    def _verify(self) -> None:
        """What `engine.fencing.task_set_check` does: read the config topic from the claim's place to its end."""
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
        """Nothing goes wrong by chance once the faults are over."""
        if self.always or self.world.network.unruly:
            deed()

    def _quiet(self) -> None:
        # A broker that is away is no quiet, and nothing is committed without it.
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
    """Kafka's transaction coordinator, as far as tasks' ids go."""

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
        """Whoever has the id now may not write under it any more."""
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
