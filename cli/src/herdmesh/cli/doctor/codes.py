"""The codes of `herd doctor`: what each finding means and what to do.

Owns the table and the form of a finding. `website/doctor_page.py` writes docs/reference/doctor.md from it, and
`herd doctor --explain CODE` prints an entry. Invariants: a code never changes its meaning; every finding has a code of
this table, a next step, and a severity; only errors change the exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from herdmesh.cli.display.views import Json

PAGE: Final = "docs/reference/doctor.md"


class Severity(StrEnum):
    """`error`: something that should work does not; exit code 1. `warning`: it heals by itself, or will become an
    error; exit code 0.
    """

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class FindingCode:
    """One kind of finding."""

    subject: str
    """The part of the mesh that has it: store, herder, worker, connector, machine, kafka."""
    severity: Severity
    meaning: str
    next_step: str


def _error(subject: str, meaning: str, next_step: str) -> FindingCode:
    return FindingCode(subject, Severity.ERROR, meaning, next_step)


def _warning(subject: str, meaning: str, next_step: str) -> FindingCode:
    return FindingCode(subject, Severity.WARNING, meaning, next_step)


CODES: Final[dict[str, FindingCode]] = {
    "UNREACHABLE": _error(
        "service",
        "A store or herder does not answer at its address. Its replicas, if there are any, serve meanwhile; running "
        "tasks continue.",
        "Start it, or name the right address with --config-store, --status-store or --herder.",
    ),
    "WRONG_ADDRESS": _error(
        "service",
        "Another service than the named one answers at the address.",
        "Correct the address: herders listen on 7203, config stores on 7201, status stores on 7202 unless changed.",
    ),
    "BROKER_UNREACHABLE": _error(
        "store",
        "No broker answers the store. It writes nothing until one does; running tasks continue as far as they can.",
        "Start Kafka, or correct bootstrap_servers; the store then continues by itself.",
    ),
    "CLEANUP_POLICY_WRONG": _error(
        "store",
        "The store's topic has a cleanup policy that would lose records.",
        "Run the command in the message; the store checks again within seconds.",
    ),
    "PARTITION_COUNT_WRONG": _error(
        "store",
        "The store's topic has another number of partitions than the store needs.",
        "Choose one of the ways in the message; the store checks again within seconds.",
    ),
    "NOT_AUTHORIZED": _error(
        "store",
        "The broker denies the store a permission that it needs.",
        "Run the command in the message as a Kafka administrator; the store then continues by itself.",
    ),
    "TOPIC_RECREATED": _error(
        "store",
        "The store's topic was deleted, or created again, while the store used it.",
        "Find out who deleted the topic; the store starts again with the present one.",
    ),
    "FOREIGN_WRITER": _error(
        "store",
        "A live Java Connect cluster owns the topics. The store reads and waits until that cluster is gone.",
        "Stop that Java Connect cluster: the store then takes over by itself. Till then it is a replica.",
    ),
    "FENCED": _error(
        "store",
        "Another writer of the same group fenced this one. After a pause it takes over again.",
        "Wait some seconds and run `herd doctor` again; if it stays, find the other process of this group.id.",
    ),
    "TAKE_OVER_BLOCKED": _error(
        "store",
        "The broker answers, but the store cannot write before something else has ended, which the message names.",
        "Wait some seconds and run `herd doctor` again; if it stays, do what the message says.",
    ),
    "STORE_FAILED": _error(
        "store",
        "A bug or damage stopped the store.",
        "Read the store's log; its supervisor starts it again.",
    ),
    "UNDECODABLE": _error(
        "store",
        "Records of the store's topic cannot be decoded. They change nothing.",
        "Another program writes to this topic. These records change nothing and can stay; write a tombstone to their "
        "key to have compaction remove them.",
    ),
    "NO_LEADER": _error(
        "herder",
        "No herder leads: nothing is placed, restarted or changed. Running tasks continue.",
        "A herder needs a config store that writes: fix the findings above first, then read its log.",
    ),
    "NO_WORKER": _error(
        "worker",
        "No worker is connected to the leading herder, so no connector can run.",
        "Start a worker, or read the log of one that should be connected: it names the herder it dials.",
    ),
    "WORKER_LOST": _error(
        "worker",
        "The session of a worker broke. Its tasks move to other workers unless it returns within seconds.",
        "Read its log and start it again; `herd get workers` shows when it is back.",
    ),
    "WORKER_DRAINING": _warning(
        "worker",
        "A worker was drained: it gets no tasks.",
        "`herd undrain worker ID` lets it take tasks again; or stop it.",
    ),
    "DUPLICATE_WORKER_ID": _error(
        "worker",
        "Two processes use one worker id and evict each other.",
        "`herd get workers` shows the one that is used; the log of the other has the same message.",
    ),
    "WORKER_UNREACHABLE": _warning(
        "worker",
        "A worker is connected to the herder, and does not answer at its own address from here: its version, clock and "
        "disks were not checked.",
        "Allow connections from this machine to that address, or run `herd doctor` where workers are reachable.",
    ),
    "PLUGIN_REFUSED": _warning(
        "worker",
        "A plugin was found in a plugin folder and cannot be used.",
        "Do what the message says; `herd get plugins` lists it under NOT USED until it can be loaded.",
    ),
    "CONNECTOR_FAILED": _error(
        "connector",
        "A connector's instance failed and is not being restarted now. Its tasks may still run.",
        "`herd describe connector NAME` says what will happen; mend the cause, then `herd restart NAME`.",
    ),
    "TASK_FAILED": _error(
        "connector",
        "A task failed. Its records wait; nothing is lost.",
        "`herd describe connector NAME` says what will happen and has the trace; mend the cause, then `herd restart "
        "NAME --task N`.",
    ),
    "NOT_RUNNING": _error(
        "connector",
        "A connector or task is to run, and no worker has run it for a minute.",
        "The message says what it waits for; `herd get workers` shows free slots and the plugins that are missing.",
    ),
    "RESTARTING": _warning(
        "connector",
        "A connector or task is restarted automatically after a failure.",
        "Wait for the attempt; `herd describe connector NAME` has the error and the attempts that are left.",
    ),
    "NO_TASKS": _warning(
        "connector",
        "A connector runs and made no tasks, so no records move.",
        "Check that the tables, files or topics of its config exist; its worker's log has its reason.",
    ),
    "TASK_CONFIGS": _error(
        "connector",
        "A connector could not make or store new task configs; its tasks stay as they are.",
        "Do what the message says; it is tried again by itself.",
    ),
    "INCONSISTENT_TASKS": _warning(
        "connector",
        "The stored task set of a connector is incomplete and will be made again.",
        "Nothing, if it is gone within a minute; else read the log of the connector's worker.",
    ),
    "WAITING": _warning(
        "connector",
        "A connector or task waits for something outside: a server, a lock, a topic, a slot. Nothing is lost.",
        "Check what it waits for: it then continues by itself. `herd describe connector` shows its attempts.",
    ),
    "STALLED": _warning(
        "connector",
        "The run of a task makes no progress.",
        "Repair what it waits for, or read the stacks in its worker's log; `herd restart` abandons the run.",
    ),
    "RECONFIGURATION_LIMITED": _warning(
        "connector",
        "A connector requests new task configs too often, and is slowed down.",
        "Find out why the connector requests new task configs: its log has the reason.",
    ),
    "KAFKA_UNREACHABLE": _error(
        "kafka",
        "No broker answers this machine at the bootstrap servers.",
        "Start Kafka, or name its address with --bootstrap-servers. For TLS and logins `herd context set` takes "
        "--command-config.",
    ),
    "KAFKA_PARTITIONS_OFFLINE": _error(
        "kafka",
        "Partitions have no leader: nothing can be read from or written to them.",
        "Start the brokers that have their replicas.",
    ),
    "KAFKA_UNDER_REPLICATED": _warning(
        "kafka",
        "Partitions have fewer replicas in sync than they should have.",
        "Start the missing brokers; if all run, check their disks and network.",
    ),
    "KAFKA_CLUSTERS_DIFFER": _error(
        "kafka",
        "Services of this mesh use different Kafka clusters.",
        "Correct the bootstrap servers of the service that the message names, and start it again.",
    ),
    "VERSION_SKEW": _warning(
        "machine",
        "Services, or this command, are of different releases. That is fine during an upgrade, one release apart.",
        "Finish the upgrade: the message names the older ones.",
    ),
    "CLOCK_SKEW": _warning(
        "machine",
        "The clock of a service's machine differs from this machine's by more than two seconds. Times in statuses, "
        "history and lag ages are wrong by as much; leases and take-over do not depend on it.",
        "Start a time service (chrony, systemd-timesyncd) on the machine that is wrong.",
    ),
    "DISK_LOW": _warning(
        "machine",
        "A disk has less than 10% and less than 10 GiB free.",
        "Free space, or move the folder to a larger disk.",
    ),
    "DISK_FULL": _error(
        "machine",
        "A disk has less than 2% and less than 1 GiB free: files and topics soon cannot be written.",
        "Free space now, or move the folder to a larger disk.",
    ),
    "SUPERVISOR_GONE": _error(
        "machine",
        "Services of `herd up` run without their supervisor: one that ends is not started again.",
        "`herd up` takes over the data folder and starts its services again; `herd down` stops them.",
    ),
    "SERVICE_DOWN": _error(
        "machine",
        "A process of `herd up` ended, and its supervisor could not start it again so far.",
        "`herd logs service NAME` has its last words.",
    ),
}


def finding(code: str, part: str, name: str, message: str, next_step: str = "", **more: object) -> Json:
    """One finding. `part` and `name` are the thing that has it, `next_step` a better one than the code's."""
    known = CODES[code]
    return {
        "code": code,
        "severity": known.severity.value,
        "part": part,
        "name": name,
        "message": message,
        "next_step": next_step or known.next_step,
        "page": f"{PAGE}#{code.lower()}",
        **more,
    }
