"""The manifest: reading it against what was folded, and making the one that ends a transaction (docs/design/stores.md,
section 4).

Owns the rule when our own word on a connector decides and when Connect's rules do. Writes nothing.

Reading. A manifest is last in its transaction, so everything it speaks of was read before it:
1. It says `deleted`: the connector is gone, whatever compaction brought back.
2. What it names is what was read last of each key, and the latest commit counts as many tasks as it says: it decides.
   Config source, task set, left-overs of a larger set, generation and incarnation are the manifest's, even where
   compaction made Connect's rules lose them.
3. It is not: a foreign writer's record lies between what the manifest's writer knew and the manifest (a task set, a
   commit, a config), or a record it names is gone. Connect's rules stand, and the connector stays foreign.
Any record of Connect's that follows makes the connector foreign: what is shown then is what Connect's rules make of
all its records since the first, as if there were no manifest (`ConnectorState.connects`), until the next one holds.

Writing. `continued` is what a write of ours goes on from, and `restated` what it has to say again, so that each record
a manifest names is the latest of its key: compaction cannot remove it.

What any legal compaction leaves unchanged: everything a caller can see of a connector that is not foreign, and all that
is written on top of it. What it may change, as it does in Connect:
- a foreign connector: it reads as Connect reads the records that are left;
- whether a foreign writer deleted a connector before it wrote its config anew: the deletion may be gone, and then the
  incarnation goes on;
- what an unreadable record under the same key stands for: the readable one before it is gone. A task set stays in force
  without its commit, a config does not outlive its record.

Invariant: reading back `build(state)` right after the records it was made from gives `state` again, `foreign` cleared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from herdmesh.configstore.state.connector import ConnectorState, TaskConfig, removed
from herdmesh.connect.topics import ManifestRecord, TaskConfigRecord, task_config_digest

#: Records not in the topic yet are folded with offsets from here on (`topicstore.writes.PROVISIONAL_OFFSET`).
IN_FLIGHT_OFFSET = 1 << 62
#: The revision of the latest commit record, and its value where that is of the manifest's own transaction.
_COMMIT, _OWN_COMMIT = "commit", -1


def continued(state: ConnectorState) -> ConnectorState:
    """The state a transaction of ours goes on from: what is shown, not what Connect's rules alone make of it.

    A connector that is gone is created anew by the next config, whoever removed it.
    """
    return replace(state, connects=None, incarnation="" if state.config is None else state.incarnation)


def restated(state: ConnectorState) -> Sequence[TaskConfigRecord]:
    """The task records to write once more in the transaction whose other records are folded into `state`: those in
    force that are not the latest of their number, because a Java leader died between its task records and the commit.
    """
    return [
        TaskConfigRecord(state.name, number, task.properties)
        for number, task in enumerate(state.tasks)
        if not _is_latest(state, number, task)
    ]


def build(state: ConnectorState, new_incarnation: str) -> ManifestRecord:
    """The manifest that ends a transaction whose other records are folded into `state`.

    `new_incarnation` names the connector if nothing does yet. An inconsistent task set is written as a count without
    digests: nobody can vouch for it.
    """
    if state.config is None:
        return ManifestRecord(
            state.name,
            state.incarnation,
            deleted=True,
            revisions={_COMMIT: _known_commit(state)},
            orphan_commit_offset=_orphan_commit_offset(state),
        )
    tasks = state.tasks
    return ManifestRecord(
        connector=state.name,
        incarnation=state.incarnation or new_incarnation,
        applied_config=state.applied_config,
        task_count=max(state.task_count or 0, 0),  # a foreign count below zero is adopted as none
        task_digests=tuple(task.digest for task in tasks),
        stray_digests={
            number: task.digest
            for number, task in sorted(state.task_configs.items())
            if not 0 <= number < len(tasks) and _is_latest(state, number, task)
        },
        restarts=state.restarts,
        task_config_generation=state.task_config_generation,
        config_digest=task_config_digest(state.config),
        revisions={
            name: _known(revision)
            for name, revision in (
                ("config", state.config_revision),
                ("target_state", state.target_state_revision),
                ("tasks", state.tasks_revision),
            )
            if revision
        }
        | {_COMMIT: _known_commit(state)},
        orphan_commit_offset=_orphan_commit_offset(state),
    )


def read(state: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    """`state` after the manifest was read; see the rules above."""
    state = state.connects or state
    if manifest.deleted:
        gone = replace(_gone(state), pending_fencing=_pending_fencing(state, manifest))
        return _in_force(gone, state, manifest)
    if state.config is None or task_config_digest(state.config) != manifest.config_digest:
        return _refused(state, manifest)
    committed = "tasks" in manifest.revisions
    if _is_raced(state, manifest):
        return _refused(state, manifest)
    if committed and state.commit_offset >= 0 and max(state.commit_tasks, 0) != manifest.task_count:
        return _refused(state, manifest)
    inconsistent = manifest.task_count > 0 and not manifest.task_digests
    tasks = _named_tasks(state, manifest) if not inconsistent else dict[int, TaskConfig]()
    if tasks is None:
        return _refused(state, manifest)
    strays = {
        number: state.task_records[number]
        for number, digest in manifest.stray_digests.items()
        if number in state.task_records and state.task_records[number].digest == digest
    }
    shown = replace(
        state,
        inconsistent=inconsistent,
        task_configs={**tasks, **strays},
        # Connect tells "no task record yet" from "none since the commit"; so do our writes, wherever they go on.
        deferred={} if manifest.task_config_generation else None,
        task_count=manifest.task_count if committed else None,
        tasks_revision=_tasks_revision(state, manifest) if committed else 0,
        # Nearly always the config itself: then one mapping is enough.
        applied_config=state.config if manifest.applied_config == state.config else manifest.applied_config,
        pending_fencing=_pending_fencing(state, manifest),
    )
    return _in_force(shown, state, manifest)


def _gone(state: ConnectorState) -> ConnectorState:
    return replace(
        removed(state),
        # Connect leaves a default behind when the target state's tombstone comes before the config's.
        target_state=state.target_state if state.target_state_revision else None,
        inconsistent=False,
    )


def _is_raced(state: ConnectorState, manifest: ManifestRecord) -> bool:
    """Whether a commit record that the manifest's writer did not know lies before the manifest. Behind a commit of its
    own transaction one cannot be told from that; it met the same config and waits for the same fence."""
    known = manifest.revisions.get(_COMMIT, _OWN_COMMIT)
    return known != _OWN_COMMIT and state.commit_offset + 1 > known


def _pending_fencing(state: ConnectorState, manifest: ManifestRecord) -> bool:
    """Of a commit and a task count record the later one decides. Compaction may have moved the config behind a commit
    that had met one, so what Connect's rules made of the commit at its place does not count; that a commit never met a
    config (Connect ignores it, docs/reference/connect/config-topic.md, section 4.4 step 1) is known from the manifest
    alone. Of a commit that the manifest's writer did not know, Connect's rules say it."""
    if _is_raced(state, manifest):
        return state.pending_fencing
    return state.commit_offset > state.fencing_offset and state.commit_offset != manifest.orphan_commit_offset


def _orphan_commit_offset(state: ConnectorState) -> int:
    is_orphan = state.commit_offset > state.fencing_offset and not state.pending_fencing
    return state.commit_offset if is_orphan else -1


def _in_force(shown: ConnectorState, connects: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    """`shown` by the manifest, with what Connect's rules say kept beside it where that is something else. Generations
    are counted from the manifest on: Connect's own count begins wherever a worker began to read."""
    common = {
        "incarnation": "" if manifest.deleted else manifest.incarnation,
        "task_config_generation": manifest.task_config_generation,
        "restarts": manifest.restarts,
        "foreign": False,
    }
    shown, connects = replace(shown, **common), replace(connects, **common)
    return shown if shown == connects else replace(shown, connects=connects)


def _refused(state: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    # Compaction may have moved the config behind this manifest; it is the same connector still.
    return replace(state, incarnation=state.incarnation or manifest.incarnation, foreign=True)


def _named_tasks(state: ConnectorState, manifest: ManifestRecord) -> Mapping[int, TaskConfig] | None:
    """The task configs the digests name, or None if one is not the latest of its number."""
    if len(manifest.task_digests) != manifest.task_count:
        return None
    named: dict[int, TaskConfig] = {}
    for number, digest in enumerate(manifest.task_digests):
        latest = state.task_records.get(number)
        if latest is None or latest.digest != digest:
            return None
        named[number] = latest
    return named


def _tasks_revision(state: ConnectorState, manifest: ManifestRecord) -> int:
    # The commit record of the set in force is the latest of its key, which compaction keeps.
    return state.commit_offset + 1 if state.commit_offset >= 0 else manifest.revisions["tasks"]


def _is_latest(state: ConnectorState, number: int, task: TaskConfig) -> bool:
    latest = state.task_records.get(number)
    return latest is not None and latest.digest == task.digest


def _known_commit(state: ConnectorState) -> int:
    return state.commit_offset + 1 if state.commit_offset < IN_FLIGHT_OFFSET else _OWN_COMMIT


def _known(revision: int) -> int:
    """A revision as the manifest may state it: 0 = of this transaction, whose offsets nobody knows yet."""
    return revision if revision < IN_FLIGHT_OFFSET else 0
