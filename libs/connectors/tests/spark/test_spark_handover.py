"""State machine test of owners that start, are suspended anywhere and resume later, in any order: all committed rows
reach the target, in the order of their numbers, and once if the target keeps numbers.

The fence and the offsets are a model of Kafka's, the target is a list; folders and files are real.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.connectors.spark.sink import handover
from herdmesh.connectors.spark.sink.handover import HandoverFolder
from herdmesh.engine.runtime.errors import OffsetsLost
from herdmesh.engine.sink import staging
from herdmesh.engine.sink.staging import Manifest, StagingFolder
from tests.support.sizes import soak_or

P0 = ("flights", 0)
COMMITS = 2
OWNERS = 4


class Killed(BaseException):
    """Death of the process within Spark's write."""


@dataclass
class World:
    """The state of Kafka and the target."""

    folder: Path
    fence: int = -1
    offset: int = 0
    metadata: str = ""
    committed: list[str] = field(default_factory=list[str])
    rows: list[str] = field(default_factory=list[str])
    last_number: int = 0
    dies_in_write: set[int] = field(default_factory=set[int])
    """Owners that die in their next write, after the target has the rows."""

    def files(self, owner: int) -> HandoverFolder:
        def write(path: Path, name: str) -> None:
            number = handover.number_of(name)
            assert number is not None
            if number > self.last_number:
                self.rows.append(path.read_text())
                self.last_number = number
            if owner in self.dies_in_write:
                raise Killed

        return HandoverFolder(self.folder, write)

    def commit(self, owner: int, offset: int, metadata: str) -> bool:
        if self.fence != owner:
            return False
        self.offset, self.metadata = offset, metadata
        return True


def life(world: World, number: int) -> Generator[None]:
    """Run an owner, like `SinkLoop` and `SparkSinkTask`; it can be suspended at each yield."""
    files = world.files(number)
    found = files.written_files()
    folder = StagingFolder(files, "group", f"run-{number}", lambda _: files)
    yield
    world.fence = number
    yield
    offset, text = world.offset, world.metadata
    yield
    named = Manifest.decode(text) if text else None
    try:
        folder.recover({P0: named})
    except OffsetsLost:
        assert world.fence != number, "committed files are gone under their owner"
        return
    yield
    written = list(named.names) if named else []
    files.forget(set(handover.of_partitions(found, [P0])) - set(written))
    before: list[str] = []
    yield
    if not world.commit(number, offset, ""):
        return
    before, written = written, []
    for _ in range(COMMITS):
        yield
        folder.begin()
        files.forget(before)
        before, written = written, []
        last = world.last_number
        yield
        name = folder.new_name(P0, offset, offset, handover.suffix_of(last + 1))
        with folder.writing(name) as file:
            file.write(content := f"{offset} by {number}".encode())
        yield
        manifest = folder.staged([name]).encode()
        yield
        offset += 1
        if not world.commit(number, offset, manifest):
            return
        world.committed.append(content.decode())
        yield
        written = [name]
        staging.publish(Manifest.decode(manifest), lambda _: files)


@settings(max_examples=soak_or(80, 3_000))
@given(
    order=st.lists(st.integers(0, OWNERS - 1), min_size=20, max_size=60),
    dies=st.sets(st.integers(0, OWNERS - 1)),
)
def test_committed_rows_are_written_once_and_in_order(order: list[int], dies: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), dies_in_write=dies)
        owners = [life(world, number) for number in range(OWNERS)]

        def step(number: int) -> bool:
            try:
                next(owners[number])
            except (StopIteration, Killed):
                return False
            return True

        for number in order:
            step(number)
        for last in (OWNERS, OWNERS + 1):
            for _ in life(world, last):  # the last one runs undisturbed
                pass
            for number in range(OWNERS):  # and all suspended owners resume
                while step(number):
                    pass
        assert world.rows == world.committed
        assert list((Path(folder) / ".staged").glob("*")) == []
        assert len(world.files(OWNERS).written_files()) <= COMMITS


def test_a_failed_write_is_repeated_and_a_named_file_is_not(tmp_path: Path) -> None:
    asked: list[str] = []
    fails = True

    def write(path: Path, name: str) -> None:
        asked.append(f"{name}: {path.read_text()}")
        if fails:
            raise OSError("the target is away")

    files = HandoverFolder(tmp_path, write)
    folder = StagingFolder(files, "group", "run", lambda _: files)
    name = folder.new_name(P0, 3, 5, handover.suffix_of(7))
    with folder.writing(name) as file:
        file.write(b"rows")
    manifest = folder.staged([name])
    with pytest.raises(OSError, match="away"):
        staging.publish(manifest, lambda _: files)
    assert files.written_files() == []
    fails = False
    assert staging.publish(manifest, lambda _: files) == []
    assert staging.publish(manifest, lambda _: files) == []
    assert asked == ["flights+0+0000000003+0000000005+n7.parquet: rows"] * 2
    assert (files.written_files(), files.staged()) == ([name], [])


def test_a_committed_file_missing_before_its_write_is_a_loss(tmp_path: Path) -> None:
    files = HandoverFolder(tmp_path, lambda _path, _name: None)
    folder = StagingFolder(files, "group", "run", lambda _: files)
    name = folder.new_name(P0, 0, 1, handover.suffix_of(None))
    with folder.writing(name) as file:
        file.write(b"rows")
    manifest = folder.staged([name])
    files.delete(manifest.staged_path(name))
    later = StagingFolder(files, "group", "later", lambda _: files)
    with pytest.raises(OffsetsLost, match="neither staged nor published"):
        later.recover({P0: manifest})


@given(number=st.none() | st.integers(1, 1 << 62), first=st.integers(0, 1 << 40), again=st.booleans())
def test_a_file_name_has_its_number_and_its_writer(number: int | None, first: int, again: bool) -> None:
    name = f"a.b-c+12+{first:010d}+{first:010d}{'+2' if again else ''}{handover.suffix_of(number)}"
    assert handover.number_of(name) == number
    assert handover.writer_of("connect-x", name, "id") == "connect-x/a.b-c-12@id"
    assert handover.of_partitions([name], [("a.b-c", 12)]) == [name]
    assert handover.of_partitions([name], [("a.b-c", 1), ("a.b", 12)]) == []


def test_connectors_with_similar_names_have_separate_folders(tmp_path: Path) -> None:
    folders = {handover.folder_of(tmp_path, group) for group in ("connect-a/b", "connect-a_b", "connect-a b")}
    assert len(folders) == 3
    assert {folder.parent for folder in folders} == {tmp_path}


def test_a_folder_keeps_its_unique_identity(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (handover.identity_of(tmp_path / name) for name in ("one", "two"))
    assert one != two
    assert handover.identity_of(tmp_path / "one") == one
    assert [path.name for path in (tmp_path / "one").iterdir()] == [".identity"]
    assert HandoverFolder(tmp_path / "one", lambda _path, _name: None).written_files() == []
