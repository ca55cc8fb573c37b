"""State machine test of owners that start, are suspended anywhere and resume later, in any order: a committed file is
published once, whole, and no other is.

The fence and the offsets are a model of Kafka's: taking over is one step, a commit succeeds only for the last owner.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from herdmesh.engine.runtime.errors import OffsetsLost
from herdmesh.engine.sink import staging
from herdmesh.engine.sink.staging import Manifest, StagingFolder
from libs.connectors.tests.files.places import Place, local_place
from tests.support.sizes import soak_or

P0 = ("flights", 0)
LONG = "x" * 230
MANY = 17
"""Number of files whose names do not fit into offset metadata."""
COMMITS = 2
OWNERS = 4


@dataclass
class World:
    """Kafka's state of the partition."""

    place: Place
    files_a_commit: int
    fence: int = -1
    offset: int = 0
    metadata: str = ""
    published: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """The expected visible files at the end."""

    def commit(self, owner: int, offset: int, metadata: str) -> bool:
        if self.fence != owner:
            return False
        self.offset, self.metadata = offset, metadata
        return True


def life(world: World, number: int) -> Generator[None]:
    """Run an owner, like `SinkLoop` and `FileSinkTask`; it can be suspended at each yield."""
    folder = StagingFolder(world.place.files(), "group", f"run-{number}", world.place.open)
    yield
    world.fence = number
    yield
    offset, text = world.offset, world.metadata
    yield
    try:
        folder.recover({P0: Manifest.decode(text) if text else None})
    except OffsetsLost:
        assert world.fence != number, "committed files are gone under their owner"
        return
    yield
    if not world.commit(number, offset, ""):
        return
    for _ in range(COMMITS):
        yield
        folder.begin()
        # Earlier owners may have staged the same offsets, and never committed them.
        written: dict[str, bytes] = {}
        for at in range(world.files_a_commit):
            name = folder.new_name(P0, offset + at, offset + world.files_a_commit - 1, ".txt", f"{at}-{LONG}")
            with folder.writing(name) as file:
                file.write(content := f"{name} by {number}".encode())
            written[name] = content
        yield
        manifest = folder.staged(written)
        yield
        offset += world.files_a_commit
        if not world.commit(number, offset, manifest.encode()):
            return
        world.published |= written
        yield
        staging.publish(Manifest.decode(manifest.encode()), world.place.open)


@settings(max_examples=soak_or(60, 3_000))
@given(
    kind=st.sampled_from(["local", "copying", "renaming"]),
    files_a_commit=st.sampled_from([1, 2, MANY]),
    order=st.lists(st.integers(0, OWNERS - 1), min_size=20, max_size=60),
)
def test_every_committed_file_is_published_once_and_no_other(kind: str, files_a_commit: int, order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(local_place(Path(folder), kind), files_a_commit)
        owners = [life(world, number) for number in range(OWNERS)]
        for number in order:
            next(owners[number], None)
        for _ in life(world, OWNERS):  # the last one runs undisturbed
            pass
        for owner in owners:  # and all suspended owners resume
            for _ in owner:
                pass
        assert world.place.visible() == world.published
