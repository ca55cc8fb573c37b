"""The whole mesh in one process: its processes, the network between them, the clock, and the replacement of gRPC.

Owns the set of processes and the routing of calls. `faults` owns the faults; `clients` the requests; `checks` the
promises.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from herdmesh.configstore.service import wire as config_wire
from herdmesh.configstore.state import config as config_state
from herdmesh.configstore.state.config import ConfigState
from herdmesh.herder.state import Rules
from herdmesh.herder.state.leadership import generations
from herdmesh.herder.state.model import RestartPolicy
from herdmesh.herder.wire import stores as store_wire
from herdmesh.herder.wire import values
from herdmesh.statusstore.state.statuses import StatusState
from tests.sim.mesh.broker import Broker
from tests.sim.mesh.checks import Checker
from tests.sim.mesh.config_store import AUDIT, ConfigReplica
from tests.sim.mesh.dataplane import DataPlane
from tests.sim.mesh.herder import HerderProcess
from tests.sim.mesh.log import Log, Replica
from tests.sim.mesh.network import Network
from tests.sim.mesh.node import Channel, Node, current_node
from tests.sim.mesh.scheduler import Process, Scheduler
from tests.sim.mesh.status_store import StatusReplica
from tests.sim.mesh.worker import OTHER_PLUGIN, PLUGIN, WorkerProcess

#: small, so that a story sees many blocks reserved, and some used up before the next one arrives.
GENERATIONS_PER_BLOCK, RESERVE_AT = 12, 3
_WRITES = ("ConfigWriteService", "StatusWriteService", "LeadershipService")


class World:
    """All state of one seed."""

    #: wall clocks at the beginning, epoch milliseconds.
    EPOCH_MS = 1_760_000_000_000
    #: small, so that a story sees budgets spent.
    restart_policy = RestartPolicy(attempts_max=3, backoff_ms=300, backoff_max_ms=2_000)

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, self.rng)
        self.trace_lines: list[str] | None = [] if trace else None
        self.checker = Checker(self)
        self.broker = Broker(self)
        self.dataplane = DataPlane(self)
        self.tick_ms = 200
        config, status = Log(self, "config", ConfigState(AUDIT)), Log(self, "status", StatusState())
        self.logs = (config, status)
        self.config_log, self.status_log = config, status
        self.config = [ConfigReplica(f"config-{number}", self, config) for number in (1, 2)]
        self.status = [StatusReplica(f"status-{number}", self, status) for number in (1, 2)]
        self.herders = [HerderProcess(f"herder-{number}", self) for number in range(1, 3)]
        both, one = (PLUGIN, OTHER_PLUGIN), (PLUGIN,)
        #: in some worlds one worker lacks a plugin.
        self.uneven = self.rng.random() < 0.2
        count = self.rng.choice((3, 3, 4))
        self.workers = [
            WorkerProcess(f"worker-{number}", self, one if self.uneven and number == 1 else both)
            for number in range(1, count + 1)
        ]
        #: processes that are not started again.
        self.down: set[Node] = set()
        self._rebalance_delay_ms = self.rng.choice((0, 0, 0, 3_000))

    @property
    def now(self) -> int:
        return self.scheduler.now

    @property
    def stores(self) -> Sequence[Replica]:
        return [*self.config, *self.status]

    @property
    def nodes(self) -> Sequence[Node]:
        return [*self.stores, *self.herders, *self.workers]

    def rules(self, herder_id: str) -> Rules:
        return Rules(
            herder_id=herder_id,
            rebalance_delay_ms=self._rebalance_delay_ms,
            balance_delay_ms=4_000,
            balance_moves_max=3,
            balance_threshold_percent=0,
            restart=self.restart_policy,
            seed=self.seed,
        )

    def chance(self, share: float) -> bool:
        """True in that share of cases while the world is unruly."""
        return self.network.unruly and self.rng.random() < share

    def begin(self) -> None:
        """Start everything."""
        for replica in self.stores:
            replica.begin()
        for log in self.logs:
            log.watch_over()
        for node in [*self.herders, *self.workers]:
            node.begin()
        self._watch_over()

    def _watch_over(self) -> None:
        for log in self.logs:
            log.watch_over()
        self.checker.look()
        if not self.network.unruly:
            for node in self.nodes:
                if not node.alive and node not in self.down:
                    self.restart(node)
        self.scheduler.at(self.now + 500, self._watch_over)

    def advance(self, ms: int) -> None:
        self.scheduler.run_until(self.now + ms)

    def restart(self, node: Node) -> None:
        """Start a dead process."""
        assert isinstance(node, HerderProcess | WorkerProcess | Replica)
        self.trace(node.name, "starts")
        node.begin()

    def route(self, node: Node, addresses: str, path: str, before: Node | None) -> Node | None:
        """Target of a call; None = no process answers."""
        replicas: Sequence[Replica] = self.config if addresses == "config" else self.status
        if _is_write(path):
            found: list[Replica] = [replica for replica in replicas if replica.alive and replica.claims]
        elif before is not None and before.alive and not self.network.is_cut(node.name, before.name):
            return before
        else:
            found = [
                replica for replica in replicas if replica.alive and not self.network.is_cut(node.name, replica.name)
            ]
        return self.rng.choice(found) if found else None

    def crashed(self, process: Process, error: Exception) -> None:
        """Handle an error that the product's code must not raise."""
        text = "".join(traceback.format_exception(error)[-4:])
        self.checker.find("crash", f"{process.name}: {error!r}\n{text}")

    def trace(self, who: str, what: str, *values: object) -> None:
        """Trace a line, if tracing is on: `what` with `values` in its places."""
        if self.trace_lines is not None:
            self.trace_lines.append(f"{self.now / 1000:9.3f} {who:10} {what % values if values else what}")

    def leader(self) -> HerderProcess | None:
        """The herder that leads under the newest epoch."""
        leading = [herder for herder in self.herders if herder.well and herder.leads]
        return max(leading, key=lambda herder: herder.herder.cluster().epoch, default=None)


@cache
def _is_write(path: str) -> bool:
    return any(service in path for service in _WRITES)


@contextmanager
def simulated() -> Generator[None]:
    """Let the product's effects open simulated channels and read simulated clocks."""
    entries: dict[int, tuple[Any, Any]] = {}
    messages: dict[int, tuple[Any, Any]] = {}
    read, written = store_wire.entry, config_wire.entry

    def entry(message: Any) -> Any:
        # Every herder gets the same message; converting it once is enough, for an entry never changes.
        found = entries.get(id(message))
        if found is None or found[0] is not message:
            found = entries[id(message)] = (message, read(message))
        return found[1]

    def entry_message(state: Any, store_id: str) -> Any:
        # A state never changes either, and is sent as the state before as often as as the state after.
        found = messages.get(id(state))
        if found is None:
            found = messages[id(state)] = (state, written(state, store_id))
        return found[1]

    def channel(addresses: str, health_service: str = "") -> Channel:
        return Channel(current_node(), addresses)

    def now_ms() -> int:
        return current_node().now_ms

    def wall_ms() -> int:
        return current_node().wall_ms

    with ExitStack() as stack:
        for module in ("campaign", "watches", "writes"):
            stack.enter_context(patch(f"herdmesh.herder.effects.{module}.connect", channel))
        stack.enter_context(patch("herdmesh.worker.effects.stores.statuses.connect", channel))
        stack.enter_context(patch("herdmesh.herder.effects.campaign.monotonic_ms", now_ms))
        for module in ("watches", "writes"):
            stack.enter_context(patch(f"herdmesh.herder.effects.{module}.wall_clock_ms", wall_ms))
        # For times in texts: otherwise no two processes would write quite the same.
        stack.enter_context(patch.object(values, "_WALL_AHEAD_MS", World.EPOCH_MS))
        stack.enter_context(patch.object(store_wire, "entry", entry))
        stack.enter_context(patch.object(config_wire, "entry", entry_message))
        stack.enter_context(patch.object(config_state, "GENERATIONS_PER_BLOCK", GENERATIONS_PER_BLOCK))
        stack.enter_context(patch.object(generations, "RESERVE_AT", RESERVE_AT))
        yield
