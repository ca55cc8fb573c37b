"""Errors of commands: one line of cause, one line of next step, and an exit code that follows the reason.

Owns the tables from reason to exit code and to next step. The service decides the reason. Invariant: every reason of
the contract has exactly one exit code and one next step, so scripts need no text and operators no search.

    0 done | 1 a difference, a finding or a failed record; else an internal error | 2 wrong usage | 3 not found
    4 exists or changed meanwhile | 5 invalid config
    6 nobody there to do it (retry) | 7 timed out | 8 not built yet | 9 data loss | 10 overloaded | 11 wrong state
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 6

EXIT_CODES: dict[str, int] = {
    "CONNECTOR_NOT_FOUND": 3,
    "TASK_NOT_FOUND": 3,
    "WORKER_NOT_FOUND": 3,
    "LEASE_NOT_FOUND": 3,
    "PLUGIN_NOT_FOUND": 3,
    "HISTORY_NOT_FOUND": 3,
    "LOGGER_NOT_FOUND": 3,
    "STATUS_NOT_FOUND": 3,
    "REQUEST_ID_UNKNOWN": 3,
    "CONNECTOR_EXISTS": 4,
    "REVISION_MISMATCH": 4,
    "WRITE_OUTCOME_UNKNOWN": 4,
    "CONFIG_INVALID": 5,
    "REQUEST_INVALID": 5,
    "STORE_REPLAYING": EXIT_UNAVAILABLE,
    "NOT_WRITER": EXIT_UNAVAILABLE,
    "WRITER_FENCED": EXIT_UNAVAILABLE,
    "NO_LEADER": EXIT_UNAVAILABLE,
    "UNREACHABLE": EXIT_UNAVAILABLE,
    "NO_WORKER": EXIT_UNAVAILABLE,
    "SHUTTING_DOWN": EXIT_UNAVAILABLE,
    "NOT_LEADER": EXIT_UNAVAILABLE,
    "TOPIC_RECREATED": EXIT_UNAVAILABLE,
    "STORE_UNAUTHORIZED": EXIT_UNAVAILABLE,
    "TIMEOUT": 7,
    "NOT_BUILT": 8,
    "RECORD_CORRUPT": 9,
    "WATCH_OVERFLOW": 10,
    "QUEUE_FULL": 10,
    "CONNECTOR_NOT_STOPPED": 11,
    "TOPIC_TRACKING_DISABLED": 11,
    "OFFSETS_REFUSED": 11,
    "DEAD_LETTERS_REFUSED": 11,
    "STALE_GENERATION": 11,
    "STALE_EPOCH": 11,
    "STATUS_NEWER": 11,
    "FOREIGN_WRITER": 11,
    "REQUEST_ID_EXPIRED": 11,
    "REVISION_COMPACTED": 10,
    "REVISION_IN_FUTURE": 10,
    "REVISION_FOREIGN": 10,
    "INTERNAL": EXIT_INTERNAL,
}

NEXT_STEPS: dict[str, str] = {
    "CONNECTOR_NOT_FOUND": "`herd get connectors` lists what exists.",
    "TASK_NOT_FOUND": "`herd describe connector NAME` lists its tasks.",
    "WORKER_NOT_FOUND": "`herd get workers` lists the workers.",
    "LEASE_NOT_FOUND": "The worker starts a lease with its next heartbeat: try again in a few seconds.",
    "PLUGIN_NOT_FOUND": "`herd get plugins` lists what the workers can load.",
    "HISTORY_NOT_FOUND": "`herd history NAME` lists the revisions that can be restored.",
    "LOGGER_NOT_FOUND": "`herd get loggers` lists the loggers.",
    "STATUS_NOT_FOUND": "The connector was just created: try again in a few seconds.",
    "REQUEST_ID_UNKNOWN": "Nothing was done under this request id: send the request again.",
    "CONNECTOR_EXISTS": "`herd apply` updates it; `herd delete` removes it.",
    "REVISION_MISMATCH": "Somebody changed it meanwhile: read it again, then repeat.",
    "WRITE_OUTCOME_UNKNOWN": "The change may have been made: check with `herd describe connector`, repeat it if not.",
    "CONFIG_INVALID": "Correct the fields named above and apply again.",
    "REQUEST_INVALID": "Correct the request as the message says; `--help` lists the options.",
    "STORE_REPLAYING": "The store still reads its topic: try again in a few seconds; `herd doctor` shows its progress.",
    "NOT_WRITER": "No store writes right now: `herd doctor` shows why.",
    "WRITER_FENCED": "Another replica of the store took over, and nothing was changed: try again.",
    "NO_LEADER": "No herder leads right now: try again in a few seconds; if it stays so, run `herd doctor`.",
    "NOT_LEADER": "Another herder leads: try again, or name that one with `--herder HOST:PORT`.",
    "UNREACHABLE": "`herd doctor` shows which services answer; start the missing one, then try again.",
    "NO_WORKER": "`herd get workers` shows the connected workers; start one that has the plugin.",
    "SHUTTING_DOWN": "The service stops, and nothing was changed: try again once it is back.",
    "TOPIC_RECREATED": "The store starts again with the new topic: `herd doctor` shows when it is back.",
    "STORE_UNAUTHORIZED": "Grant it on the broker: the store then continues by itself; `herd doctor` has the command.",
    "TIMEOUT": "The change may still be made: check with `herd describe connector`, repeat it if not.",
    "NOT_BUILT": "This release does not support it yet: upgrade.",
    "RECORD_CORRUPT": "A stored record cannot be read: `herd doctor` names it; restore it from a backup of the topic.",
    "WATCH_OVERFLOW": "The watch was too slow and was cut off: start it again.",
    "QUEUE_FULL": "Too many requests wait: try again in a few seconds, with fewer at a time.",
    "REVISION_COMPACTED": "The replica no longer remembers that revision: read the whole list again.",
    "REVISION_IN_FUTURE": "The replica is behind that revision: try again in a few seconds.",
    "REVISION_FOREIGN": "The revision is of another store: check the address, then read the whole list again.",
    "CONNECTOR_NOT_STOPPED": "`herd stop NAME` stops it; `herd resume NAME` lets it run again afterwards.",
    "TOPIC_TRACKING_DISABLED": "Change that setting of the herder, then start it again.",
    "OFFSETS_REFUSED": "Correct the offsets as the message says; `herd offsets get NAME` shows the form.",
    "DEAD_LETTERS_REFUSED": "Do as the message says; `herd dlq list NAME` shows the dead letters.",
    "STALE_GENERATION": "A newer process took the caller's place: stop this one.",
    "STALE_EPOCH": "Another herder leads now: try again.",
    "STATUS_NEWER": "A newer status is stored already: nothing to do.",
    "FOREIGN_WRITER": "A Java Connect cluster owns these topics: stop it first.",
    "REQUEST_ID_EXPIRED": "The request is too old to be repeated: check the result, then send a new one.",
    "INTERNAL": "This is a bug: report it with the correlation id; the service's log has the details.",
}


_AGAIN_AS_NULL = "Invalid value null for configuration"


@dataclass(slots=True)
class CommandError(Exception):
    """An error that ends the command. `reason` is machine-readable and part of `-o json` output."""

    reason: str
    message: str
    next_step: str = ""
    exit_code: int = EXIT_INTERNAL
    fields: tuple[tuple[str, str], ...] = ()
    """(field, message) of each violation."""

    def __str__(self) -> str:
        return self.message


def from_reason(reason: str, message: str, fields: tuple[tuple[str, str], ...] = ()) -> CommandError:
    """The command error for a service's refusal."""
    return CommandError(reason, message, NEXT_STEPS.get(reason, ""), EXIT_CODES.get(reason, EXIT_INTERNAL), fields)


def shown_violations(found: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """(field, message) of each error as outputs show it: one error per wrong value, without the field's name before it.

    Connect validates a value that it cannot parse once more, as null, and reports that too.
    """
    shown: dict[tuple[str, str], None] = {}
    wrong: set[str] = set()
    for field, message in found:
        if field in wrong and message.startswith(_AGAIN_AS_NULL):
            continue
        wrong.add(field)
        shown[field, message.removeprefix(f"{field}: ")] = None
    return tuple(shown)


def unreachable(address: str, detail: str) -> CommandError:
    """The error of a herder's address that does not answer."""
    return CommandError(
        "UNREACHABLE",
        f"no herder answers at {address} ({detail})",
        "`herd up` starts one here; `--herder HOST:PORT` or HERDMESH_HERDER names another.",
        EXIT_UNAVAILABLE,
    )
