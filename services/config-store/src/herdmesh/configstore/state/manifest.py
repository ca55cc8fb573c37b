"""The manifest: reading it against what was folded, and making the one that ends a transaction (design 4).

Owns the rule when our own word on a connector decides and when Connect's rules do. Writes nothing.

Reading. A manifest is last in its transaction, so everything it speaks of was read before it:
1. It says `deleted`: the connector is gone, whatever compaction brought back.
2. Its digests are those of the config and of the task records read: it decides. The task set, the config it was made
   from, generation and incarnation are the manifest's, even where compaction made Connect's rules lose them.
3. They are not: a foreign writer's record lies between what the manifest's writer knew and the manifest, or a record it
   names is gone. Connect's rules stand, and the connector stays foreign.
Any record of Connect's that follows makes the connector foreign again (`connector.fold`), until the next manifest.

Invariant: reading back `build(state)` right after the records it was made from gives `state` again, `foreign` cleared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from herdmesh.configstore.state.connector import ConnectorState, TaskConfig, removed
from herdmesh.connect.config_records import ManifestRecord, task_config_digest

#: Records not in the topic yet are folded with offsets from here on (`topicstore.writes.PROVISIONAL_OFFSET`).
IN_FLIGHT_OFFSET = 1 << 62


def build(state: ConnectorState, new_incarnation: str) -> ManifestRecord:
    """The manifest that ends a transaction whose other records are folded into `state`.

    `new_incarnation` names the connector if nothing does yet. An inconsistent task set is written as a count without
    digests: nobody can vouch for it.
    """
    if state.config is None:
        return ManifestRecord(state.name, state.incarnation, deleted=True)
    tasks = state.tasks
    return ManifestRecord(
        connector=state.name,
        incarnation=state.incarnation or new_incarnation,
        applied_config=state.applied_config,
        task_count=max(state.task_count or 0, 0),  # a foreign count below zero is adopted as none
        task_digests=tuple(task.digest for task in tasks),
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
        },
    )


def read(state: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    """`state` after the manifest was read; see the rules above."""
    if manifest.deleted:
        return _gone(state)
    if state.config is None or task_config_digest(state.config) != manifest.config_digest:
        return _refused(state, manifest)
    if manifest.task_count > 0 and not manifest.task_digests:
        return _decided(replace(state, inconsistent=True), manifest)
    tasks = _named_tasks(state, manifest)
    if tasks is None:
        return _refused(state, manifest)
    return _decided(replace(state, inconsistent=False, task_configs=tasks), manifest)


def _gone(state: ConnectorState) -> ConnectorState:
    return replace(
        removed(state),
        inconsistent=False,
        task_config_generation=0,
        pending_fencing=state.commit_offset > state.fencing_offset,
        task_records={},
        foreign=False,
    )


def _refused(state: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    # Compaction may have moved the config behind this manifest; it is the same connector still.
    return replace(state, incarnation=state.incarnation or manifest.incarnation, foreign=True)


def _decided(state: ConnectorState, manifest: ManifestRecord) -> ConnectorState:
    # The commit record of the set in force is the latest of its key, which compaction keeps.
    committed = "tasks" in manifest.revisions and state.commit_offset >= 0
    return replace(
        state,
        task_count=manifest.task_count if committed else None,
        tasks_revision=state.commit_offset + 1 if committed else 0,
        applied_config=manifest.applied_config,
        task_config_generation=manifest.task_config_generation,
        # Of a commit and a count, the later one tells, whatever Connect's rules made of the commit at its place.
        pending_fencing=state.commit_offset > state.fencing_offset,
        incarnation=manifest.incarnation,
        foreign=False,
    )


def _named_tasks(state: ConnectorState, manifest: ManifestRecord) -> Mapping[int, TaskConfig] | None:
    """The task configs the digests name, or None if one is not there. A record in force may be older than the latest
    of its number: a Java leader that died before its commit left one behind."""
    if len(manifest.task_digests) != manifest.task_count:
        return None
    named: dict[int, TaskConfig] = {}
    for task, digest in enumerate(manifest.task_digests):
        candidates = (state.task_configs.get(task), state.task_records.get(task))
        found = next((one for one in candidates if one is not None and one.digest == digest), None)
        if found is None:
            return None
        named[task] = found
    return named


def _known(revision: int) -> int:
    """A revision as the manifest may state it: 0 = of this transaction, whose offsets nobody knows yet."""
    return revision if revision < IN_FLIGHT_OFFSET else 0
