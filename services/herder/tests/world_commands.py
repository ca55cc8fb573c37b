"""Replies of a worker of the herder's test world to commands that are about no unit: plugins, plans, loggers, offsets.

Owns the rules of these replies as far as a herder sees them. A wrong command makes a failure, as in a real worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.model import LoggerLevel
from herdmesh.herder.state.model import events as ev
from herdmesh.herder.state.model.requests import OffsetsAnswer
from herdmesh.session import worker_commands as qu
from herdmesh.session.model import Failure, Properties
from herdmesh.topicstore.contract import Revision

if TYPE_CHECKING:
    from services.herder.tests.world import World


@dataclass
class Answers:
    """State from which one worker replies. `mute` = it receives commands and does not reply."""

    levels: dict[str, str] = field(default_factory=lambda: {"root": "INFO"})
    #: of the newest cluster-wide level that it was sent, and the loggers that each level changed, by revision and
    #: request id.
    logger_revision: Revision | None = None
    levels_set: dict[Revision | str, list[str]] = field(default_factory=dict[Revision | str, list[str]])
    level_failure: Failure | None = None
    mute: bool = False
    offset_failure: Failure | None = None
    read_failure: Failure | None = None
    offset_uncertain: bool = False
    #: it writes offsets in the prepare step, as in standalone mode.
    has_offset_file: bool = False
    #: it changes offsets and dies before its reply.
    dies_after_writing: bool = False
    letters_failure: Failure | None = None
    asked: list[qu.WorkerCommand] = field(default_factory=list[qu.WorkerCommand])
    ids: list[str] = field(default_factory=list[str])

    def reply(self, world: World, reply: ev.CommandReplied, body: qu.WorkerCommand) -> ev.CommandReplied | None:
        """The reply; None when there is none."""
        self.asked.append(body)
        self.ids.append(reply.command_id)
        if self.mute:
            return None
        match body:
            case qu.DescribePlugin(class_name=class_name):
                return replace(reply, plugin_fields=(f"fields of {class_name}",))
            case qu.ListLoggers(logger=logger):
                found = sorted(name for name in self.levels if name.startswith(logger))
                return replace(reply, loggers=tuple(LoggerLevel(name, self.levels[name]) for name in found))
            case qu.SetLogger(level=level):
                if self.level_failure is not None:
                    return replace(reply, failure=self.level_failure)
                changed = self._set_level(body)
                return replace(reply, loggers=tuple(LoggerLevel(name, level, world.now) for name in changed))
            case qu.AlterOffsets(connector=connector):
                if self.offset_failure is not None:
                    return replace(reply, failure=self.offset_failure, outcome_unknown=self.offset_uncertain)
                if body.prepare and not self.has_offset_file:
                    return replace(reply, offsets=OffsetsAnswer(body.offsets), prepared=body.offsets)
                before = tuple(world.offsets.get(connector, []))
                if not body.dry_run and body.reset:
                    world.offsets.pop(connector, None)
                elif not body.dry_run:
                    world.offsets.setdefault(connector, []).append(body.offsets)
                told = tuple(one for entries in before for one in entries) if body.reset else body.offsets
                if self.dies_after_writing:
                    return None
                return replace(reply, offsets=OffsetsAnswer(told, "done"))
            case qu.ReadOffsets(connector=connector):
                entries = [one for entries in world.offsets.get(connector, []) for one in entries]
                return replace(reply, offsets=OffsetsAnswer(tuple(entries)), failure=self.read_failure)
            case qu.PlanTaskConfigs(config=config):
                tasks, failure = world.tasks_of(str(config["name"]), config)
                return replace(reply, tasks=tasks, failure=failure)
            case qu.ListDeadLettersOnWorker(wire=wire) | qu.ReplayOnWorker(wire=wire):
                return replace(reply, failure=self.letters_failure, dead_letters=f"told of {wire}")
            case _:
                raise AssertionError(f"nobody answers {body}")

    def _set_level(self, body: qu.SetLogger) -> list[str]:
        """The loggers that changed, now or at the first such command, as in `herdmesh.worker.state.levels`."""
        logger, level, revision = body.logger, body.level, body.revision
        known = self.levels_set.get(body.request_id)
        if known is None and revision is not None and self.logger_revision is not None:
            heard = self.logger_revision.includes(revision)
            known = self.levels_set.get(revision, []) if heard else None
        if known is not None:
            return known
        under = {name for name in {*self.levels, logger} if name.startswith(logger)}
        changed = sorted(name for name in under if self.levels.get(name) != level)
        self.levels.update(dict.fromkeys(changed, level))
        self.logger_revision = revision or self.logger_revision
        self.levels_set.update({key: changed for key in (revision, body.request_id) if key})
        return changed

    def restarted(self) -> None:
        """A new process begins with default levels and without memory of earlier ones."""
        self.levels, self.logger_revision, self.levels_set = {"root": "INFO"}, None, {}


def made_tasks(config: Properties, count: int) -> tuple[Properties, ...]:
    """Task configs of the test connector: `shape` is in each, so that they can differ with equal counts."""
    shape = {"shape": str(config["shape"])} if "shape" in config else {}
    return tuple({"task.class": "x", "part": str(task), **shape} for task in range(count))


REFUSED = Failure("The value for the 'position' key in the offset is expected to be a Long value")
AWAY = Failure("Kafka does not answer", error_class=ErrorClass.RETRIABLE)
