"""Stage, commit, publish on a real folder: nothing committed is lost, nothing else published, nothing replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from herdmesh.engine.runtime.errors import ManifestInvalid, OffsetsLost, TaskFailed
from herdmesh.engine.sink import staging
from herdmesh.engine.sink.staging import Manifest, StagingFolder

P0 = ("flights", 0)
P1 = ("flights", 1)
GROUP = "connect-sink"


def stage(folder: StagingFolder, partition: tuple[str, int], first: int, last: int, text: str = "rows") -> Manifest:
    name = folder.new_name(partition, first, last, ".parquet")
    folder.staged_path(name).write_text(text)
    return folder.staged([name])


def visible(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))


def hidden(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name.startswith("."))


def test_a_staged_file_is_hidden_and_its_name_holds_its_origin(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path, GROUP, "run-1")
    stage(folder, P0, 0, 99)
    assert visible(tmp_path) == []
    assert len(hidden(tmp_path)) == 1
    assert hidden(tmp_path)[0].endswith("-flights+0+0000000000+0000000099.parquet")


def test_publishing_twice_equals_publishing_once(tmp_path: Path) -> None:
    manifest = stage(StagingFolder(tmp_path, GROUP, "run-1"), P0, 0, 99)
    assert staging.publish(manifest) == []
    assert staging.publish(manifest) == []
    assert visible(tmp_path) == ["flights+0+0000000000+0000000099.parquet"]
    assert hidden(tmp_path) == []


def test_a_death_between_link_and_unlink_leaves_nothing_to_repair(tmp_path: Path) -> None:
    manifest = stage(StagingFolder(tmp_path, GROUP, "run-1"), P0, 0, 99)
    (name,) = manifest.names
    (tmp_path / name).hardlink_to(tmp_path / (manifest.prefix + name))
    assert staging.publish(manifest) == []
    assert hidden(tmp_path) == []


def test_a_published_file_is_never_replaced(tmp_path: Path) -> None:
    manifest = stage(StagingFolder(tmp_path, GROUP, "run-1"), P0, 0, 99)
    (tmp_path / manifest.names[0]).write_text("somebody else's")
    with pytest.raises(TaskFailed, match="a different file"):
        staging.publish(manifest)
    assert (tmp_path / manifest.names[0]).read_text() == "somebody else's"
    assert len(hidden(tmp_path)) == 1


def test_offsets_written_again_after_a_rewind_get_a_new_file_name(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path, GROUP, "run-1")
    for _ in range(3):
        staging.publish(stage(folder, P0, 0, 99))
    assert visible(tmp_path) == [
        "flights+0+0000000000+0000000099+2.parquet",
        "flights+0+0000000000+0000000099+3.parquet",
        "flights+0+0000000000+0000000099.parquet",
    ]


def test_recovery_publishes_committed_files_and_deletes_the_others(tmp_path: Path) -> None:
    dead = StagingFolder(tmp_path, GROUP, "run-1")
    committed = stage(dead, P0, 0, 99, "committed")
    stage(dead, P0, 100, 199, "never committed")
    other_task = stage(dead, P1, 0, 9, "of a partition somebody else owns")
    other_group = stage(StagingFolder(tmp_path, "connect-other", "run-2"), P0, 0, 9)

    StagingFolder(tmp_path, GROUP, "run-3").recover({P0: committed})

    assert visible(tmp_path) == ["flights+0+0000000000+0000000099.parquet"]
    assert hidden(tmp_path) == sorted(m.prefix + m.names[0] for m in (other_task, other_group))


def test_recovery_after_publishing_changes_nothing(tmp_path: Path) -> None:
    dead = StagingFolder(tmp_path, GROUP, "run-1")
    committed = stage(dead, P0, 0, 99)
    staging.publish(committed)
    StagingFolder(tmp_path, GROUP, "run-2").recover({P0: committed, P1: None})
    assert visible(tmp_path) == ["flights+0+0000000000+0000000099.parquet"]


def test_a_stale_owner_finds_its_files_published_by_its_successor(tmp_path: Path) -> None:
    stale = StagingFolder(tmp_path, GROUP, "run-1")
    committed = stage(stale, P0, 0, 99)
    StagingFolder(tmp_path, GROUP, "run-2").recover({P0: committed})
    assert staging.publish(committed) == []
    assert visible(tmp_path) == ["flights+0+0000000000+0000000099.parquet"]


def test_missing_committed_files_are_named_after_the_others_are_published(tmp_path: Path) -> None:
    dead = StagingFolder(tmp_path, GROUP, "run-1")
    lost, kept = stage(dead, P0, 0, 99), stage(dead, P1, 0, 99)
    (tmp_path / (lost.prefix + lost.names[0])).unlink()
    with pytest.raises(OffsetsLost, match=r"flights\+0\+0000000000"):
        StagingFolder(tmp_path, GROUP, "run-2").recover({P0: lost, P1: kept})
    assert visible(tmp_path) == ["flights+1+0000000000+0000000099.parquet"]


def test_a_connector_moved_to_another_folder_still_publishes_in_the_old_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    committed = stage(StagingFolder(old, GROUP, "run-1"), P0, 0, 99)
    StagingFolder(new, GROUP, "run-2").recover({P0: committed})
    assert visible(old) == ["flights+0+0000000000+0000000099.parquet"]
    assert visible(new) == []


def test_long_topic_names_fit_a_file_name_and_stay_distinct(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path, GROUP, "run-1")
    topics = ["t" * 248 + end for end in "ab"]
    manifests = [stage(folder, (topic, 0), 0, 2**62) for topic in topics]
    assert len(set(hidden(tmp_path))) == 2
    StagingFolder(tmp_path, GROUP, "run-2").recover({(topics[0], 0): None})
    assert hidden(tmp_path) == [manifests[1].prefix + manifests[1].names[0]]


def test_a_commit_manifest_is_read_back_or_refused() -> None:
    manifest = Manifest("/data", ".staged-x-", ("a.parquet", "b.parquet"))
    assert Manifest.decode(manifest.encode()) == manifest
    for text in ("", "{}", "[]", "null", '{"d":1}'):
        with pytest.raises(ManifestInvalid):
            Manifest.decode(text)
