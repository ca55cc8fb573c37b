"""Faults of a story: each fault is one method, chosen and timed by the seed.

Owns the faults and their healing. Each is counted by kind in `World.faults` when it really happens.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from herdmesh.connect.topics import config_topic
from herdmesh.connect.topics.config_records import ConnectorRecord
from herdmesh.connect.topics.decoding import Tombstone
from herdmesh.topicstore import StoreRole, WriteStage
from tests.sim.stores.clock import pause
from tests.sim.stores.process import Harm, Life
from tests.sim.stores.world import World, until
from tests.support.history import Kind, Outcome
from tests.support.store_clients import FOREIGN_KEY

_HEAL_S = 120.0
STAGES = tuple(WriteStage)


class Faults:
    """One story's faults."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(world.rng.random())
        self._seed = seed
        self._foreign_writes = 0
        self._returning: set[asyncio.Task[None]] = set()
        # A supervisor restarts each process that ended, for whatever reason.
        world.on_death = lambda life: self._later(lambda: self._restart(life.name), 0.2, 9.0)
        self._choices: list[tuple[Callable[[], None], int]] = [
            (self.harm_at_stage, 6),
            (self.kill, 1),
            (self.stop, 1),
            (self.lose_an_answer, 2),
            (self.broker_away, 1),
            (self.move_ownership, 2),
            (self.tell_twice, 1),
            (self.fence_from_outside, 1),
            (self.lag, 2),
            (self.compact, 2),
            (self.close, 1),
            (self.lose_messages, 1),
        ]
        if world.side.has_requests:
            self._choices.append((self.foreign_record, 2))

    async def run(self) -> None:
        # Every story meets one stage and deed for sure, so that a row of seeds meets them all.
        await until(lambda: bool(self._world.writers()), 30.0)
        self._arm(STAGES[self._seed % 6], ("kill", "stop")[self._seed // 6 % 2])
        while True:
            await pause(self._rng.choice((0.1, 0.5, 1.5, 3.0)))
            choices, weights = zip(*self._choices, strict=True)
            self._rng.choices(choices, weights=weights)[0]()

    async def heal(self) -> str | None:
        """Restart everything; returns the reason if something keeps failing."""
        world = self._world
        world.broker.available = True
        world.loss = 0.0
        for task in self._returning:
            task.cancel()
        for life in world.lives.values():
            life.harm = None
            life.reader_delay_s = 0.0
            life.go_on()
            if not life.dead:
                self._tell_truth(life)
        healed = await until(self._is_whole, _HEAL_S)
        roles = {life.label: life.store.role.value for life in world.lives.values()}
        return None if healed else f"healed, and {_HEAL_S:g} s later the roles are {roles}"

    def _is_whole(self) -> bool:
        """One writes, the others replicate. Processes that ended in the meantime are restarted, as a supervisor does,
        and a member that wrongly believes it is the owner learns the truth with its next heartbeat.
        """
        owner = self._world.broker.owner(self._world.side.settings.election_group)
        for life in list(self._world.lives.values()):
            if life.dead:
                self._world.start(life.name)
            elif life.log is not owner:
                self._tell_truth(life)
        roles = [life.store.role for life in self._world.lives.values()]
        return roles.count(StoreRole.WRITER) == 1 and roles.count(StoreRole.REPLICA) == len(roles) - 1

    # Processes.

    def harm_at_stage(self) -> None:
        self._arm(self._rng.choice(STAGES), self._rng.choice(("kill", "stop")))

    def _arm(self, stage: WriteStage, deed: str) -> None:
        for life in self._world.writers():
            if not life.stopped and life.harm is None:
                life.harm = Harm(stage, deed)
                self._later(life.go_on, 0.3, 14.0)

    def kill(self) -> None:
        name = self._pick()
        if name is not None:
            self._world.fault("kill", self._world.lives[name].label)
            self._world.lives[name].kill()

    def stop(self) -> None:
        name = self._pick()
        if name is not None:
            self._world.fault("stop", self._world.lives[name].label)
            self._world.lives[name].stop()
            self._later(self._world.lives[name].go_on, 0.5, 14.0)

    def close(self) -> None:
        name = self._pick()
        if name is not None:
            life = self._world.lives[name]
            self._world.fault("clean stop", life.label)
            self._spawn(life.close())

    def lag(self) -> None:
        name = self._pick()
        if name is not None:
            life = self._world.lives[name]
            self._world.fault("reader far behind", life.label)
            life.reader_delay_s = self._rng.choice((0.5, 2.0, 8.0))

            def catch_up() -> None:
                life.reader_delay_s = 0.0

            self._later(catch_up, 1.0, 12.0)

    def _restart(self, name: str) -> None:
        if self._world.lives[name].dead:
            self._world.start(name)

    def _pick(self) -> str | None:
        names = [life.name for life in self._world.running()]
        return self._rng.choice(names) if len(names) > 1 or (names and self._rng.random() < 0.2) else None

    def _tell_truth(self, life: Life[Any]) -> None:
        """Deliver the group's next heartbeat to a member."""
        owner = self._world.broker.owner(self._world.side.settings.election_group) is life.log
        if owner != (life.store.role in (StoreRole.WRITER, StoreRole.TAKING_OVER)):
            life.log.tell_owner(owner)

    # The broker and the ways to it.

    def lose_an_answer(self) -> None:
        for life in self._world.writers():
            applied = self._rng.random() < 0.5
            self._world.fault(f"commit's answer lost, {'applied' if applied else 'not applied'}", life.label)
            life.lose_answer = applied

    def lose_messages(self) -> None:
        self._world.fault("lossy network")
        self._world.loss = 0.1

        def over() -> None:
            self._world.loss = 0.0

        self._later(over, 0.5, 5.0)

    def broker_away(self) -> None:
        self._world.fault("broker away")
        self._world.broker.available = False

        def back() -> None:
            self._world.broker.available = True

        self._later(back, 0.2, 6.0)

    def move_ownership(self) -> None:
        group = self._world.side.settings.election_group
        before = self._world.broker.move(group)
        if before is None:
            return
        self._world.fault("two writers at once", f"{before.name} is not told")
        for life in self._world.running():
            if life.log is before:
                self._later(lambda life=life: self._tell_truth(life), 0.5, 5.0)

    def tell_twice(self) -> None:
        for life in self._world.running():
            if self._rng.random() < 0.5:
                self._world.fault("ownership told wrongly", life.label)
                life.log.tell_owner(True)
                self._later(lambda life=life: self._tell_truth(life), 0.1, 1.0)

    def fence_from_outside(self) -> None:
        """A Java leader starts, takes the id and ends again."""
        identity = self._world.side.settings.transactional_id
        if self._world.broker.available and not self._world.broker.is_committing(identity):
            self._world.fault("fenced from outside")
            self._world.broker.fence(identity, "java")

    def compact(self) -> None:
        gone = self._world.broker.compact(self._world.side.settings.topic, lambda of: self._rng.random() < of)
        if gone:
            self._world.fault("compaction", f"of {gone} records")

    def foreign_record(self) -> None:
        """A plain Java producer writes and deletes a connector of its own."""
        self._foreign_writes += 1
        value = f"java-{self._foreign_writes}" if self._rng.random() < 0.8 else None
        record = (
            Tombstone("connector", FOREIGN_KEY)
            if value is None
            else ConnectorRecord(FOREIGN_KEY, {"name": FOREIGN_KEY, "v": value})
        )
        key, encoded = config_topic.encode(record)
        operation = self._world.history.invoke("java", FOREIGN_KEY, Kind.PUT, value=value)
        self._world.broker.produce(self._world.side.settings.topic, key, encoded)
        self._world.fault("foreign record", str(value))
        self._world.history.finish(operation, Outcome.OK)

    # Later.

    def _later(self, deed: Callable[[], None], low_s: float, high_s: float) -> None:
        async def wait() -> None:
            await pause(self._rng.uniform(low_s, high_s))
            deed()

        self._spawn(wait())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
