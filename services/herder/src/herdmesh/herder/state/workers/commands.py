"""Commands to workers: the choice of the worker, and the command that waits for its reply.

Owns the choice of a worker. Does not own the table of commands under way (`CallTable`), nor the effect of a reply:
`worker_sessions.py` passes replies on.

Invariant: a command belongs to a call or to a connector's own work, and is forgotten with it; a reply is accepted
once, and only over the session over which the command was sent.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from herdmesh.connect.config import connector_advice
from herdmesh.connect.error_class import ErrorClass
from herdmesh.herder.state.memory import (
    Call,
    CallTable,
    Command,
    Fleet,
    HerderMemory,
    Member,
    Step,
    StoreViews,
)
from herdmesh.herder.state.model import CLASS_KEY, PLUGIN_VERSION_KEY, Validation
from herdmesh.herder.state.model.events import CommandReplied
from herdmesh.herder.state.workers import plugin_eligibility
from herdmesh.herder.state.workers.plugin_catalog import connector_names, plugins_text
from herdmesh.rpc.errors import FieldViolation, InvalidConfig, NoWorker
from herdmesh.session.messages import SendCommand
from herdmesh.session.model import Properties
from herdmesh.session.worker_commands import (
    AlterOffsets,
    ListDeadLettersOnWorker,
    PlanTaskConfigs,
    ReadOffsets,
    ReplayOnWorker,
    ValidateOnWorker,
    WorkerCommand,
)

#: Workers send a heartbeat every second. One that was silent for so long gets a command only when there is no other.
SILENT_MS: Final = 2_000
#: The longest time that a write of a worker takes, as a rule.
WRITE_MS: Final = 2_000


def send_to_able_worker(
    memory: HerderMemory,
    call: Call,
    body: ValidateOnWorker | PlanTaskConfigs | AlterOffsets | ReadOffsets | ListDeadLettersOnWorker | ReplayOnWorker,
) -> None:
    """Send a command to a worker that has the class of the command's config (`preferred`).

    Raises NoWorker, or InvalidConfig when no worker has the class.
    """
    send_command(
        memory.step,
        memory.fleet,
        memory.call_table,
        call,
        _best(memory.step, memory.stores, memory.fleet, body.config),
        body,
    )


def send_command(
    step: Step, fleet: Fleet, call_table: CallTable, call: Call, member: Member, body: WorkerCommand
) -> None:
    """Send a connected worker a command of a call."""
    call.command_ids.add(_send(step, fleet, call_table, member, body, call=call.id))


def send_for_connector(
    step: Step, fleet: Fleet, call_table: CallTable, connector: str, member: Member, body: WorkerCommand
) -> None:
    """Send a connected worker a command of a connector's own work."""
    _send(step, fleet, call_table, member, body, connector=connector)


def time_left_ms(step: Step, call: Call) -> int:
    """Time in which a worker must begin to write for a call: until the caller's deadline, less the time that the write
    and the reply may take.
    """
    left_ms = max(0, call.deadline_ms - step.now)
    return left_ms - min(WRITE_MS, left_ms // 10)


def verdict(reply: CommandReplied) -> Validation:
    """A worker's verdict on a config. Raises InvalidConfig or NoWorker when it could not give one."""
    if reply.validation is not None:
        return reply.validation
    failure = reply.failure
    message = failure.message if failure is not None else "the worker gave no result"
    if failure is not None and failure.error_class not in (ErrorClass.RETRIABLE, ErrorClass.UNREACHABLE):
        raise InvalidConfig([FieldViolation(CLASS_KEY, message)])
    raise NoWorker(message)


def _send(
    step: Step,
    fleet: Fleet,
    call_table: CallTable,
    member: Member,
    body: WorkerCommand,
    call: int | None = None,
    connector: str = "",
) -> str:
    assert member.session is not None
    command_id = f"{type(body).__name__}-{call_table.next_number()}"
    command = Command(command_id, member.session, member.worker_id, body, step.now, call, connector)
    call_table.add_command(command)
    fleet.send(member.session, SendCommand(command_id, body))
    return command_id


def preferred(step: Step, able: Collection[Member]) -> Member:
    """The worker for a command: one that is not silent, then the one with the least load, by id where equal."""
    return min(able, key=lambda member: (is_silent(step, member), len(member.load), member.worker_id))


def is_silent(step: Step, member: Member) -> bool:
    """True when the worker may have stopped: a command to it may wait until it is declared lost, or much longer."""
    return step.now - member.last_message_ms >= SILENT_MS


def able(fleet: Fleet, config: Properties) -> list[Member]:
    """The connected workers that can load the class of a config, in the requested version and with the other plugins
    that the config names, if any worker has them.
    """
    class_name, version = _text(config, CLASS_KEY), _text(config, PLUGIN_VERSION_KEY)
    found = [member for member in fleet.members.values() if member.session is not None]
    found = [member for member in found if class_name in member.connectors]
    # A worker with the class in another version gives the best error about the requested version.
    found = [member for member in found if member.has_plugin((class_name, version))] or found
    return [member for member in found if next(plugin_eligibility.lacks(fleet, member, config), None) is None] or found


#: Java classes that have no connector of their name here, and the connector for the same purpose, with its own keys.
_REPLACEMENTS = {
    "io.debezium.connector.jdbc.JdbcSinkConnector": "PostgresSink",
    "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector": "S3Sink",
    "io.aiven.kafka.connect.s3.S3SinkConnector": "S3Sink",
}


def _best(step: Step, stores: StoreViews, fleet: Fleet, config: Properties) -> Member:
    class_name = _text(config, CLASS_KEY)
    members = [member for member in fleet.members.values() if member.session is not None]
    if not members:
        raise NoWorker("no worker is connected, so the config cannot be validated; start a worker and try again")
    if not class_name.strip():
        text = f'Missing required configuration "{CLASS_KEY}" which has no default value; {plugins_text(fleet)}'
        raise InvalidConfig([FieldViolation(CLASS_KEY, text)])
    if "${" in class_name:
        text = (
            f"{class_name} is a reference, which only a worker can resolve, and the herder chooses the worker by the "
            "class: write the name of the class"
        )
        raise InvalidConfig([FieldViolation(CLASS_KEY, text)])
    found = able(fleet, config) or [member for member in members if member.has_plugin_folders]
    if not found and any(lease.live and lease.worker_id not in fleet.members for lease in stores.leases.values()):
        raise NoWorker(f"no worker with {class_name} is connected, but not all live workers have dialled in yet")
    if not found:
        advice = connector_advice(class_name, connector_names(fleet))
        text = (
            f"Failed to find any class that implements Connector and which name matches {class_name}; "
            f"{advice or plugins_text(fleet)}"
        )
        if twin := _REPLACEMENTS.get(class_name):
            text += f"; its equivalent here is {twin}"
        raise InvalidConfig([FieldViolation(CLASS_KEY, text)])
    return preferred(step, found)


def _text(config: Properties, key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""
