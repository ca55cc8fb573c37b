"""Every error a topic store raises.

    TopicStoreError
    |-- StartError                     start() gave up; nothing runs
    |   |-- TopicMisconfigured         a topic that exists is not what the store needs (policy, partitions)
    |   `-- BrokerUnreachable          no broker answered within the start-up time
    |-- NotApplied                     the call changed nothing; the same call may be sent again
    |   |-- StoreReplaying             the first replay has not ended: try again soon
    |   |-- NotWriter                  another replica writes: try another replica
    |   |-- WriterFenced               this writer was cut off before the write took effect: try again
    |   |-- QueueFull                  too many writes wait: slow down
    |   `-- StoreClosed                this store is closing or broken: try another replica
    |-- WriteOutcomeUnknown            may be applied: read before trying again
    |-- RevisionError                  the revision given cannot be served
    |   |-- RevisionForeign            it belongs to another store (topic recreated, wrong address)
    |   |-- RevisionCompacted          too old: list, then watch again
    |   `-- RevisionInFuture           not written yet, not even in the topic
    `-- WatchOverflow                  this watcher fell behind: resume from `last`

Owns the types and their data; how they look on a wire belongs to `herdmesh.rpc`. Invariant: an error under
`NotApplied` is raised only when no record of the call is or will be visible.
"""

from __future__ import annotations

from herdmesh.topicstore.contract import Revision, Role


class TopicStoreError(Exception):
    """Root of the tree above."""


class StartError(TopicStoreError):
    """`start()` gave up."""


class TopicMisconfigured(StartError):
    """Topic `topic` exists with `setting` = `found` where the store needs `expected`."""

    def __init__(self, topic: str, setting: str, expected: str, found: str) -> None:
        super().__init__(f"topic {topic!r} has {setting}={found}, this store needs {setting}={expected}")
        self.topic = topic
        self.setting = setting
        self.expected = expected
        self.found = found


class BrokerUnreachable(StartError):
    """No broker of `bootstrap_servers` did what start-up needs; `reason` is the last answer."""

    def __init__(self, bootstrap_servers: str, reason: str) -> None:
        super().__init__(f"cannot reach Kafka at {bootstrap_servers}: {reason}")
        self.bootstrap_servers = bootstrap_servers
        self.reason = reason


class NotApplied(TopicStoreError):
    """The call changed nothing."""


class StoreReplaying(NotApplied):
    """The topic has not been read to its end yet."""

    def __init__(self) -> None:
        super().__init__("the store is still reading its topic for the first time")


class NotWriter(NotApplied):
    """This replica does not write now; `role` says what it does instead."""

    def __init__(self, role: Role) -> None:
        super().__init__(f"this replica is not the writer (its role is {role.value})")
        self.role = role


class WriterFenced(NotApplied):
    """The writer was cut off, by a newer writer's fence or by a failed transaction (`reason`), before the write took
    effect. Every write that was decided on top of it fails alike."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the writer was cut off, nothing was applied: {reason}")
        self.reason = reason


class QueueFull(NotApplied):
    """`limit` writes wait already."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} writes are waiting already")
        self.limit = limit


class StoreClosed(NotApplied):
    """The store was closed, or closed itself because of `reason`."""

    def __init__(self, reason: str = "closed") -> None:
        super().__init__(f"the store is closed: {reason}")
        self.reason = reason


class WriteOutcomeUnknown(TopicStoreError):
    """The transaction was sent and its end was not learned in time (`reason`)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the write may or may not have been applied: {reason}")
        self.reason = reason


class RevisionError(TopicStoreError):
    """`given` cannot be served."""

    def __init__(self, message: str, given: Revision) -> None:
        super().__init__(message)
        self.given = given


class RevisionForeign(RevisionError):
    """`given` is of another store than `store_id`."""

    def __init__(self, given: Revision, store_id: str) -> None:
        super().__init__(f"revision of store {given.store_id!r} was given to store {store_id!r}", given)
        self.store_id = store_id


class RevisionCompacted(RevisionError):
    """Changes after `given` are forgotten; the oldest revision that can be resumed is `oldest`."""

    def __init__(self, given: Revision, oldest: Revision) -> None:
        super().__init__("changes after this revision are no longer remembered: list, then watch again", given)
        self.oldest = oldest


class RevisionInFuture(RevisionError):
    """`given` is beyond the end of the topic, which is at `current`."""

    def __init__(self, given: Revision, current: Revision) -> None:
        super().__init__("this revision is beyond the end of the topic", given)
        self.current = current


class WatchOverflow(TopicStoreError):
    """The watcher was cut off `lag` changes behind; `last` is the revision of the last event it was given."""

    def __init__(self, last: Revision, lag: int) -> None:
        super().__init__(f"the watcher is {lag} changes behind and was cut off")
        self.last = last
        self.lag = lag
