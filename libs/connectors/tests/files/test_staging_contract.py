"""Contract tests of stage, commit and publish in every kind of folder:
no committed file is lost, no other published, and none replaced.

The rules of a local disk (`libs/core/tests/engine/sink/test_staging.py`) hold for publishing on S3 and Hadoop.
"""

from __future__ import annotations

import json

import pytest

from herdmesh.engine.runtime.errors import ManifestInvalid, OffsetsLost, TaskFailed
from herdmesh.engine.sink import manifest as metadata
from herdmesh.engine.sink import staging
from herdmesh.engine.sink.staging import Manifest, StagingFolder
from libs.connectors.tests.files.places import Place

P0 = ("flights", 0)
P1 = ("flights", 1)
GROUP = "connect-sink"
FIRST = "flights+0+0000000000+0000000099.txt"
DEEP = "b" * 230
MANY = 17
"""Number of files whose names do not fit into offset metadata."""


def owner(place: Place, run: str = "run-1", group: str = GROUP) -> StagingFolder:
    return StagingFolder(place.files(), group, run, place.open)


def stage(
    folder: StagingFolder, partition: tuple[str, int] = P0, first: int = 0, text: str = "rows", subfolders: int = 0
) -> Manifest:
    """Stage one file, or one in each of `subfolders` subfolders."""
    folder.begin()
    names = [
        folder.new_name(partition, first + at, first + 99, ".txt", f"a={at:02d}/{DEEP}" if subfolders else "")
        for at in range(max(subfolders, 1))
    ]
    for name in names:
        with folder.writing(name) as file:
            file.write(text.encode())
    return folder.staged(names)


def publish(place: Place, manifest: Manifest) -> list[str]:
    """Publish a manifest as read from offset metadata."""
    return staging.publish(Manifest.decode(manifest.encode()), place.open)


def test_staged_files_are_hidden_and_published_files_whole_and_unique(place: Place) -> None:
    manifest = stage(owner(place))
    assert place.visible() == {}
    assert len(place.hidden()) == 1
    for _ in range(2):
        assert publish(place, manifest) == []
        assert place.visible() == {FIRST: b"rows"}
        assert place.hidden() == []


def test_an_owner_that_died_between_naming_and_deletion_needs_no_repair(place: Place) -> None:
    manifest = stage(owner(place))
    files = place.files()
    assert files.publish(manifest.staged_path(FIRST), FIRST)
    assert publish(place, manifest) == []
    assert place.visible() == {FIRST: b"rows"}
    assert place.hidden() == []


def test_a_file_with_other_content_is_never_replaced(place: Place) -> None:
    manifest = stage(owner(place))
    with place.files().writing(FIRST) as file:
        file.write(b"somebody else's")
    with pytest.raises(TaskFailed, match="a different file"):
        publish(place, manifest)
    assert place.visible() == {FIRST: b"somebody else's"}
    assert len(place.hidden()) == 1


def test_offsets_that_are_written_again_after_a_rewind_get_a_name_of_their_own(place: Place) -> None:
    folder = owner(place)
    for text in ("one", "two", "three"):
        publish(place, stage(folder, text=text))
    stem = FIRST.removesuffix(".txt")
    assert place.visible() == {FIRST: b"one", f"{stem}+2.txt": b"two", f"{stem}+3.txt": b"three"}


def test_recovery_publishes_what_is_committed_and_deletes_what_is_not(place: Place) -> None:
    dead = owner(place)
    committed = stage(dead, text="committed")
    stage(dead, first=100, text="never committed")
    other_task = stage(dead, P1, text="of a partition somebody else owns")
    other_group = stage(owner(place, "run-2", "connect-other"))

    owner(place, "run-3").recover({P0: committed})

    assert place.visible() == {FIRST: b"committed"}
    assert place.hidden() == sorted(one.staged_path(one.names[0]) for one in (other_task, other_group))
    owner(place, "run-4").recover({P0: committed, P1: None})
    assert place.visible() == {FIRST: b"committed"}


def test_a_suspended_owner_deletes_no_file_of_its_successors_commit(place: Place) -> None:
    """It took over, read that nothing is committed, and was suspended before it cleaned."""
    slept = owner(place, "run-1")
    next_one = owner(place, "run-2")
    next_one.recover({P0: None})
    committed = stage(next_one)
    slept.recover({P0: None})
    assert publish(place, committed) == []
    assert place.visible() == {FIRST: b"rows"}


def test_a_resumed_owner_finds_its_files_published_or_moved(place: Place) -> None:
    committed = stage(owner(place))
    owner(place, "run-2").recover({P0: committed})
    assert publish(place, committed) == []
    assert place.visible() == {FIRST: b"rows"}
    place.files().delete(FIRST)  # a reader removed it
    assert publish(place, committed) == [f"{place.directory}/{FIRST}"]
    assert place.look() == {}


def test_committed_files_that_are_gone_are_named_after_all_else_is_done(place: Place) -> None:
    dead = owner(place)
    lost, kept = stage(dead), stage(dead, P1)
    place.files().delete(lost.staged_path(FIRST))
    with pytest.raises(OffsetsLost, match=r"flights\+0\+0000000000"):
        owner(place, "run-2").recover({P0: lost, P1: kept})
    assert list(place.visible()) == [FIRST.replace("+0+", "+1+", 1)]


def test_files_in_subfolders_are_published_with_their_folders(place: Place) -> None:
    publish(place, stage(owner(place), subfolders=3))
    assert list(place.visible()) == [f"a={at:02d}/{DEEP}/flights+0+{at:010d}+0000000099.txt" for at in range(3)]
    assert place.hidden() == []


def test_names_that_do_not_fit_into_the_metadata_go_to_a_file(place: Place) -> None:
    folder = owner(place)
    manifest = stage(folder, subfolders=MANY)
    assert manifest.names == ()
    metadata.encode(manifest.encode())  # fits into the broker's limit
    assert len(place.hidden()) == MANY + 1
    assert len(json.loads(place.files().read(manifest.listed))) == MANY

    owner(place, "run-2").recover({P0: manifest})

    assert len(place.visible()) == MANY
    assert place.hidden() == [manifest.listed]  # as long as it is the committed one
    assert publish(place, manifest) == []
    owner(place, "run-3").recover({P0: None})
    assert place.hidden() == []


def test_a_file_of_names_is_kept_until_the_next_commit(place: Place) -> None:
    folder = owner(place)
    manifest = stage(folder, subfolders=MANY)
    publish(place, manifest)
    folder.begin()  # for a commit that may fail
    assert place.hidden() == [manifest.listed]
    folder.begin()  # the commit succeeded
    assert place.hidden() == []


def test_without_the_file_of_names_no_possibly_named_file_is_deleted(place: Place) -> None:
    manifest = stage(owner(place), subfolders=MANY)
    place.files().delete(manifest.listed)
    with pytest.raises(OffsetsLost, match=r"\.manifest"):
        owner(place, "run-2").recover({P0: manifest})
    assert len(place.hidden()) == MANY
    with place.files().writing(manifest.listed) as file:
        file.write(b"{")
    with pytest.raises(ManifestInvalid):
        owner(place, "run-3").recover({P0: manifest})


def test_a_connector_that_moved_to_another_folder_still_publishes_in_the_old_one(place: Place) -> None:
    committed = stage(owner(place))
    elsewhere = place.open(f"{place.directory}/new")
    StagingFolder(elsewhere, GROUP, "run-2", place.open).recover({P0: committed})
    assert place.look() == {FIRST: b"rows"}


def test_a_manifest_of_the_first_version_is_recovered(place: Place) -> None:
    """Offset metadata of the time before there were other formats and file systems."""
    files = place.files()
    prefix = ".staged-0123abcd-0123456789ab-"
    with files.writing(prefix + FIRST) as file:
        file.write(b"rows")
    text = json.dumps({"d": place.directory, "p": prefix, "f": [FIRST]}, separators=(",", ":"))
    owner(place).recover({P0: Manifest.decode(text)})
    assert place.look() == {FIRST: b"rows"}
