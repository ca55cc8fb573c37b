"""The manifest: the rules to read it against the folded state, and to build the one that ends a transaction
(docs/design/stores.md, section 4).

Owns the choice between our manifest and Connect's rules for a connector. Writes nothing.

Reading. A manifest is last in its transaction, so all records that it names were read before it:
1. If it has `deleted`, the connector is deleted, whatever compaction brought back.
2. If each record it names is the latest of its key, and the latest commit has its task count, the manifest decides.
   Config source, task set, left-overs of a larger set, generation and incarnation are the manifest's, even where
   compaction made Connect's rules lose them.
3. Otherwise a foreign writer's record (a task set, a commit, a config) lies between the state that the manifest's
   writer knew and the manifest, or a record it names is gone. Connect's rules apply, and the connector stays foreign.
Any later record of Connect makes the connector foreign. Readers then see the result of Connect's rules over all its
records since the first, as if there were no manifest (`ConnectorState.connects`), until the next valid manifest.

Writing. `continued` is the state from which a write of ours starts, and `restated` the records that it writes again, so
that each record a manifest names is the latest of its key: compaction cannot remove it.

No legal compaction changes what a caller can see of a connector that is not foreign, nor any state written on top of
it. Compaction may change, as it does in Connect:
- a foreign connector: it reads as Connect reads the records that are left;
- whether a foreign writer deleted a connector before it wrote its config again: the deletion may be gone, and then the
  incarnation continues;
- the meaning of an unreadable record: the readable record before it under the same key is gone. A task set stays in
  force without its commit; a config does not outlive its record.

Invariant: reading back `build(state)` right after the records it was made from gives `state` again, `foreign` cleared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from herdmesh.configstore.state.connector import ConnectorState, TaskConfig, removed
from herdmesh.connect.topics import ManifestRecord, TaskConfigRecord, task_config_digest

#: Records that are not in the topic yet are folded with offsets from here on (`topicstore.writes.PROVISIONAL_OFFSET`).
IN_FLIGHT_OFFSET = 1 << 62
#: The key of the latest commit record's revision, and its value where that commit is in the manifest's own transaction.
_COMMIT, _OWN_COMMIT = "commit", -1


def continued(state: ConnectorState) -> ConnectorState:
    """The state from which a transaction of ours starts: the visible state, not the result of Connect's rules alone.

    The next config creates a removed connector again, whoever removed it.
    """
    return replace(state, connects=None, incarnation="" if state.config is None else state.incarnation)


def restated(state: ConnectorState) -> Sequence[TaskConfigRecord]:
    """The task records to write again in the transaction whose other records are folded into `state`: those in force
    that are not the latest of their number, because a Java leader died between its task records and the commit.
    """
    return [
        TaskConfigRecord(state.name, number, task.properties)
        for number, task in enumerate(state.tasks)
        if not _is_latest(state, number, task)
    ]


def build(state: ConnectorState, new_incarnation: str) -> ManifestRecord:
    """The manifest that ends a transaction whose other records are folded into `state`.

    `new_incarnation` is used if the connector has no incarnation yet. An inconsistent task set is written as a count
    without digests: nobody can confirm its configs.
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
        task_count=max(state.task_count or 0, 0),  # a negative foreign count is written as zero; `read` shows it
        task_digests=tuple(task.digest for task in tasks),
        leftover_digests={
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
    """`state` after the manifest was read, by the rules in the module's docstring."""
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
        for number, digest in manifest.leftover_digests.items()
        if number in state.task_records and state.task_records[number].digest == digest
    }
    shown = replace(
        state,
        inconsistent=inconsistent,
        task_configs={**tasks, **strays},
        # Connect distinguishes "no task record yet" from "none since the commit"; so do our writes that start from this
        # state.
        deferred={} if manifest.task_config_generation else None,
        task_count=_task_count(state, manifest) if committed else None,
        tasks_revision=_tasks_revision(state, manifest) if committed else 0,
        # Nearly always the config itself: then both share one mapping.
        applied_config=state.config if manifest.applied_config == state.config else manifest.applied_config,
        pending_fencing=_pending_fencing(state, manifest),
    )
    return _in_force(shown, state, manifest)


def _task_count(state: ConnectorState, manifest: ManifestRecord) -> int:
    """The count of the manifest, or the negative one of the latest commit, which Connect shows as it was written."""
    if state.commit_offset >= 0 and state.commit_tasks < 0:
        return state.commit_tasks
    return manifest.task_count


def _gone(state: ConnectorState) -> ConnectorState:
    return replace(
        removed(state),
        # Connect leaves a default behind when the target state's tombstone comes before the config's.
        target_state=state.target_state if state.target_state_revision else None,
        inconsistent=False,
    )


def _is_raced(state: ConnectorState, manifest: ManifestRecord) -> bool:
    """True if a commit record that the manifest's writer did not know lies before the manifest. If the manifest's own
    transaction has a commit, a foreign commit before it cannot be detected; it met the same config and waits for the
    same fence.
    """
    known = manifest.revisions.get(_COMMIT, _OWN_COMMIT)
    return known != _OWN_COMMIT and state.commit_offset + 1 > known


def _pending_fencing(state: ConnectorState, manifest: ManifestRecord) -> bool:
    """True if the task set waits for a fence: the later of commit and task count record decides. Compaction may have
    moved the config behind a commit that had met one, so the result of Connect's rules at the commit's position does
    not count. Only the manifest shows that a commit never met a config (Connect ignores it,
    docs/reference/connect/config-topic.md, section 4.4 step 1). For a commit that the manifest's writer did not know,
    Connect's rules decide.
    """
    if _is_raced(state, manifest):
        return state.pending_fencing
    return state.commit_offset > state.fencing_offset and state.commit_offset != manifest.orphan_commit_offset


def _orphan_commit_offset(state: ConnectorState) -> int:
    is_orphan = state.commit_offset > state.fencing_offset and not state.pending_fencing
    return state.commit_offset if is_orphan else -1


def _in_force(shown: ConnectorState, connects: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    """The state `shown` by the manifest, with the state by Connect's rules beside it where that differs. Generations
    are counted from the manifest on: Connect's own count begins at the record where a worker began to read.
    """
    common = {
        "incarnation": "" if manifest.deleted else manifest.incarnation,
        "task_config_generation": manifest.task_config_generation,
        "restarts": manifest.restarts,
        "foreign": False,
    }
    shown, connects = replace(shown, **common), replace(connects, **common)
    return shown if shown == connects else replace(shown, connects=connects)


def _refused(state: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    # Compaction may have moved the config behind this manifest; it is still the same connector.
    return replace(state, incarnation=state.incarnation or manifest.incarnation, foreign=True)


def _named_tasks(state: ConnectorState, manifest: ManifestRecord) -> Mapping[int, TaskConfig] | None:
    """The task configs of the manifest's digests, or None if one is not the latest of its number."""
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
    # The commit record of the task set in force is the latest of its key, and compaction keeps that.
    return state.commit_offset + 1 if state.commit_offset >= 0 else manifest.revisions["tasks"]


def _is_latest(state: ConnectorState, number: int, task: TaskConfig) -> bool:
    latest = state.task_records.get(number)
    return latest is not None and latest.digest == task.digest


def _known_commit(state: ConnectorState) -> int:
    return state.commit_offset + 1 if state.commit_offset < IN_FLIGHT_OFFSET else _OWN_COMMIT


def _known(revision: int) -> int:
    """A revision as the manifest may name it: 0 = of this transaction, whose offsets are not known yet."""
    return revision if revision < IN_FLIGHT_OFFSET else 0
