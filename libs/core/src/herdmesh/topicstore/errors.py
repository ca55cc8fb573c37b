"""Every error a topic store raises.

    TopicStoreError
    |-- StartError                     start() failed; nothing runs, it may be called again
    |   |-- TopicMisconfigured         an existing topic does not fit the store (policy, partitions)
    |   |-- BrokerUnreachable          no broker answered within the start-up time
    |   `-- NotAuthorized              the broker denies the store a permission it needs (also NotApplied: at any time)
    |-- ForeignWriter                  `may_write` found another writer; no caller sees it
    |-- TakeOverBlocked                the take-over waits for an external event; no caller sees it
    |-- NotApplied                     the call changed nothing; the same call may be sent again
    |   |-- StoreReplaying             the first replay has not ended: retry soon
    |   |-- NotWriter                  another replica writes: try another replica
    |   |-- WriterFenced               this writer was fenced before the write took effect: retry
    |   |-- QueueFull                  too many writes wait: slow down
    |   `-- StoreClosed                this store is closing or broken: try another replica
    |       `-- TopicRecreated         its topic was deleted or created anew while the store used it
    |-- RecordTooLarge                 a record that no broker would accept; nothing was applied, nor will be
    |-- BesideRefused                  Kafka rejects the side writes of a write; nothing was applied
    |-- WriteOutcomeUnknown            may be applied: read before a retry
    |-- RevisionError                  the given revision cannot be served
    |   |-- RevisionForeign            it belongs to another store (topic recreated, wrong address)
    |   |-- RevisionCompacted          too old: list, then watch again
    |   `-- RevisionInFuture           not written yet, not even in the topic
    `-- WatchOverflow                  this watcher fell behind: resume from `last`

Owns the types and their data. Their form on the wire belongs to `herdmesh.rpc`, the store condition of each to
`health`. The message of an error that an operator has to fix names the fix, in one line.
Invariant: an error under `NotApplied` is raised only when no record of the call is or will be visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from herdmesh.topicstore.contract import Revision, StoreRole


class TopicStoreError(Exception):
    """Root of the tree above."""


class StartError(TopicStoreError):
    """`start()` failed and nothing runs; fix the cause and call it again."""


class TopicMisconfigured(StartError):
    """Topic `topic` exists with `setting` = `found` where the store needs `expected`. `setting` is `cleanup.policy` or
    `partitions`."""

    def __init__(self, topic: str, setting: str, expected: str, found: str, bootstrap_servers: str = "") -> None:
        wrong = f"topic {topic!r} has {setting}={found}, this store needs {setting}={expected}"
        super().__init__(f"{wrong}: {_mending(topic, setting, expected, bootstrap_servers or 'HOST:PORT')}")
        self.topic = topic
        self.setting = setting
        self.expected = expected
        self.found = found


def _mending(topic: str, setting: str, expected: str, bootstrap: str) -> str:
    if setting == "cleanup.policy":
        return (
            f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {topic}"
            f" --add-config {setting}={expected}"
        )
    # With more partitions the next record of a key would go to another partition, and a key would have two live
    # records. The number of partitions cannot be reduced.
    own = "" if expected == "1" else "set this store's number of partitions to the topic's, or "
    return (
        f"partitions of a topic in use must not be changed; {own}name another topic in this store's settings, or delete"
        f" the topic with all its records (kafka-topics.sh --bootstrap-server {bootstrap} --delete --topic {topic})"
        " and let this store create it again"
    )


class BrokerUnreachable(StartError):
    """No broker of `bootstrap_servers` answered as start-up needs; `reason` is the last answer."""

    def __init__(self, bootstrap_servers: str, reason: str) -> None:
        super().__init__(
            f"cannot reach Kafka at {bootstrap_servers}: {reason.rstrip('. ')}; check that a broker runs there and "
            "that bootstrap_servers names it; this store retries until one answers"
        )
        self.bootstrap_servers = bootstrap_servers
        self.reason = reason


class NotApplied(TopicStoreError):
    """The call changed nothing."""


class NotAuthorized(StartError, NotApplied):
    """The broker does not allow this store to `operation` (such as "write to") `resource` (such as "topic x").

    `fix` is the command with which the operator grants it.
    """

    def __init__(self, operation: str, resource: str, fix: str) -> None:
        super().__init__(f"the broker does not allow this store to {operation} {resource}: {fix}")
        self.operation = operation
        self.resource = resource


class ForeignWriter(TopicStoreError):
    """Live `members` of `owner` write the topics. Raised by a `may_write` hook, which is called again later."""

    def __init__(self, owner: str, members: Sequence[str]) -> None:
        named = ", ".join(members)
        super().__init__(
            f"live members of {owner} own the topics: {named}; stop them and this store takes over by itself,"
            " until then it serves reads only"
        )
        self.members = tuple(members)


class TakeOverBlocked(TopicStoreError):
    """This replica should become the writer and cannot yet: it waits `for_what`, although a broker answers. `fix` is
    the action for an operator when that takes long.
    """

    def __init__(self, for_what: str, fix: str) -> None:
        super().__init__(
            f"this store cannot become the writer yet, it waits for {for_what}; it tries again by itself, and serves"
            f" reads until then; if this persists: {fix}"
        )


class StoreReplaying(NotApplied):
    """The topic has not been read to its end yet."""

    def __init__(self) -> None:
        super().__init__("the store is still reading its topic for the first time")


class NotWriter(NotApplied):
    """This replica is not the writer; `role` is its role."""

    def __init__(self, role: StoreRole) -> None:
        super().__init__(f"this replica is not the writer (its role is {role.value})")
        self.role = role


class WriterFenced(NotApplied):
    """The writer was cut off, by a newer writer's fence or by a failed transaction (`reason`), before the write took
    effect. Every write that was decided on top of it fails too.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the writer was cut off, nothing was applied: {reason}")
        self.reason = reason


class QueueFull(NotApplied):
    """`limit` writes already wait."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} writes are waiting already")
        self.limit = limit


class StoreClosed(NotApplied):
    """The store was closed, or closed itself because of `reason`."""

    def __init__(self, reason: str = "closed") -> None:
        super().__init__(f"the store is closed: {reason}")
        self.reason = reason


class TopicRecreated(StoreClosed):
    """`topic` had the id `had`, and now has `found` (None = the topic does not exist): this state is of another
    topic."""

    def __init__(self, topic: str, had: str, found: str | None) -> None:
        again = f"was deleted and created again (its id was {had} and is {found})"
        happened = "was deleted" if found is None else again
        super().__init__(
            f"topic {topic!r} {happened} under this store: the store ends, and serves the topic's new content after"
            " its restart; if this was a mistake, restore the topic's records before that"
        )
        self.topic = topic


class RecordTooLarge(TopicStoreError):
    """A record of the write has `size_bytes` of key and value; the topics accept `limit_bytes`. Nothing was applied."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"a record of this write has {size_bytes} bytes, the topics take at most {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class BesideRefused(TopicStoreError):
    """Kafka rejects `what`, a side write of the write (such as "a record for topic 'x'"), because of `reason`. Nothing
    was applied; a retry may be rejected again.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"nothing was applied, because Kafka does not accept {what}: {reason.rstrip('. ')}")
        self.what = what
        self.reason = reason


class WriteOutcomeUnknown(TopicStoreError):
    """The transaction was sent and its outcome was not learned in time (`reason`)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the write may or may not have been applied: {reason}")
        self.reason = reason


class RevisionError(TopicStoreError):
    """The revision `given` cannot be served."""

    def __init__(self, message: str, given: Revision) -> None:
        super().__init__(message)
        self.given = given


class RevisionForeign(RevisionError):
    """The revision `given` belongs to another store than `store_id`."""

    def __init__(self, given: Revision, store_id: str) -> None:
        super().__init__(f"revision of store {given.store_id!r} was given to store {store_id!r}", given)
        self.store_id = store_id


class RevisionCompacted(RevisionError):
    """Changes after `given` are no longer remembered; the oldest revision that can be resumed is `oldest`."""

    def __init__(self, given: Revision, oldest: Revision) -> None:
        super().__init__("changes after this revision are no longer remembered: list, then watch again", given)
        self.oldest = oldest


class RevisionInFuture(RevisionError):
    """`given` is beyond the end of the topic, which is at `current`."""

    def __init__(self, given: Revision, current: Revision) -> None:
        super().__init__("this revision is beyond the end of the topic", given)
        self.current = current


class WatchOverflow(TopicStoreError):
    """The watcher was cut off `lag` changes behind; `last` is the revision of the last event it received."""

    def __init__(self, last: Revision, lag: int) -> None:
        super().__init__(f"the watcher is {lag} changes behind and was cut off")
        self.last = last
        self.lag = lag
