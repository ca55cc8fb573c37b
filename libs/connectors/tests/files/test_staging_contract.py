"""Stage, commit, publish in every kind of folder: nothing committed is lost, nothing else published, nothing replaced.

What holds on a local disk (`libs/core/tests/engine/sink/test_staging.py`) holds for S3's and Hadoop's way of
publishing.
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
"""Files whose names need more than offset metadata can have."""


def owner(place: Place, run: str = "run-1", group: str = GROUP) -> StagingFolder:
    return StagingFolder(place.files(), group, run, place.open)


def stage(
    folder: StagingFolder, partition: tuple[str, int] = P0, first: int = 0, text: str = "rows", subfolders: int = 0
) -> Manifest:
    """One file, or one in each of so many subfolders."""
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
    """As from the offset metadata."""
    return staging.publish(Manifest.decode(manifest.encode()), place.open)


def test_what_is_staged_is_hidden_and_what_is_published_is_whole_and_there_once(place: Place) -> None:
    manifest = stage(owner(place))
    assert place.visible() == {}
    assert len(place.hidden()) == 1
    for _ in range(2):
        assert publish(place, manifest) == []
        assert place.visible() == {FIRST: b"rows"}
        assert place.hidden() == []


def test_an_owner_that_died_between_name_and_deletion_left_nothing_to_repair(place: Place) -> None:
    manifest = stage(owner(place))
    files = place.files()
    assert files.publish(manifest.staged_path(FIRST), FIRST)
    assert publish(place, manifest) == []
    assert place.visible() == {FIRST: b"rows"}
    assert place.hidden() == []


def test_a_file_of_other_content_is_never_replaced(place: Place) -> None:
    manifest = stage(owner(place))
    with place.files().writing(FIRST) as file:
        file.write(b"somebody else's")
    with pytest.raises(TaskFailed, match="another file"):
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


def test_an_owner_that_slept_through_the_next_ones_commit_deletes_none_of_its_files(place: Place) -> None:
    """It took the fence, read that nothing is committed, and stood still before it cleaned."""
    slept = owner(place, "run-1")
    next_one = owner(place, "run-2")
    next_one.recover({P0: None})
    committed = stage(next_one)
    slept.recover({P0: None})
    assert publish(place, committed) == []
    assert place.visible() == {FIRST: b"rows"}


def test_an_owner_that_wakes_after_its_successor_finds_its_work_done_or_moved_on(place: Place) -> None:
    committed = stage(owner(place))
    owner(place, "run-2").recover({P0: committed})
    assert publish(place, committed) == []
    assert place.visible() == {FIRST: b"rows"}
    place.files().delete(FIRST)  # a reader took it away
    assert publish(place, committed) == [f"{place.directory}/{FIRST}"]
    assert place.look() == {}


def test_committed_files_that_are_gone_are_named_after_all_else_is_done(place: Place) -> None:
    dead = owner(place)
    lost, kept = stage(dead), stage(dead, P1)
    place.files().delete(lost.staged_path(FIRST))
    with pytest.raises(OffsetsLost, match=r"flights\+0\+0000000000"):
        owner(place, "run-2").recover({P0: lost, P1: kept})
    assert list(place.visible()) == [FIRST.replace("+0+", "+1+", 1)]


def test_files_of_subfolders_come_with_their_folders(place: Place) -> None:
    publish(place, stage(owner(place), subfolders=3))
    assert list(place.visible()) == [f"a={at:02d}/{DEEP}/flights+0+{at:010d}+0000000099.txt" for at in range(3)]
    assert place.hidden() == []


def test_names_that_the_metadata_has_no_room_for_go_into_a_file_of_their_own(place: Place) -> None:
    folder = owner(place)
    manifest = stage(folder, subfolders=MANY)
    assert manifest.names == ()
    metadata.encode(manifest.encode())  # the broker keeps it
    assert len(place.hidden()) == MANY + 1
    assert len(json.loads(place.files().read(manifest.listed))) == MANY

    owner(place, "run-2").recover({P0: manifest})

    assert len(place.visible()) == MANY
    assert place.hidden() == [manifest.listed]  # as long as it is what is committed
    assert publish(place, manifest) == []
    owner(place, "run-3").recover({P0: None})
    assert place.hidden() == []


def test_a_file_of_names_is_kept_until_the_commit_after_it(place: Place) -> None:
    folder = owner(place)
    manifest = stage(folder, subfolders=MANY)
    publish(place, manifest)
    folder.begin()  # of a commit that may fail
    assert place.hidden() == [manifest.listed]
    folder.begin()  # it did not
    assert place.hidden() == []


def test_where_the_file_of_names_is_gone_nothing_it_may_have_named_is_deleted(place: Place) -> None:
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
    """As the offset metadata has it of connectors that ran before there were other formats and file systems."""
    files = place.files()
    prefix = ".staged-0123abcd-0123456789ab-"
    with files.writing(prefix + FIRST) as file:
        file.write(b"rows")
    text = json.dumps({"d": place.directory, "p": prefix, "f": [FIRST]}, separators=(",", ":"))
    owner(place).recover({P0: Manifest.decode(text)})
    assert place.look() == {FIRST: b"rows"}
