"""native.c and the ctypes structures against librdkafka's public header, and its rows against numpy's.

The header is the one in the npm package that `make check` installs (deploy/check-tools.txt), or the system's.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

from herdmesh.engine.librdkafka import native
from herdmesh.engine.librdkafka.batch_consumer import BatchConsumer
from herdmesh.kafka import librdkafka

ROOT = Path(__file__).parents[5]
SOURCE = ROOT / "libs/core/src/herdmesh/engine/librdkafka/native.c"
PACKAGE = ROOT / ".venv/npm/node_modules/node-rdkafka/deps/librdkafka/src"
OPTIONS = ("-std=c11", "-Wall", "-Wextra", "-Werror")


@pytest.fixture
def headers(tmp_path: Path) -> Path:
    """An include folder with `librdkafka/rdkafka.h`."""
    found = [folder for folder in (PACKAGE, Path("/usr/include/librdkafka")) if (folder / "rdkafka.h").is_file()]
    if not found:
        pytest.skip("no rdkafka.h: make check installs one (deploy/check-tools.sh)")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler named cc")
    folder = tmp_path / "include"
    folder.mkdir()
    (folder / "librdkafka").symlink_to(found[0])
    return folder


def compiled(headers: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["cc", *OPTIONS, "-I", str(headers), "-x", "c", *options, "-"], input=text, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_native_c_agrees_with_the_public_header(headers: Path) -> None:
    text = SOURCE.read_text()
    checked = text + "\n#ifndef HERDMESH_CHECKED_AGAINST_RDKAFKA\n#error not checked\n#endif\n"
    assert compiled(headers, checked, "-fsyntax-only").stderr == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    int64_t offset;\n    void *private;", "    void *private;\n    int64_t offset;"),
        ("    size_t len;\n    void *key;", "    int len;\n    void *key;"),
        ("V_MSGFLAGS = 7", "V_MSGFLAGS = 6"),
        ("QUEUE_FULL = -184", "QUEUE_FULL = -185"),
        ("F_COPY = 2", "F_COPY = 1"),
    ],
)
def test_a_wrong_field_or_enum_does_not_compile(headers: Path, old: str, new: str) -> None:
    text = SOURCE.read_text()
    assert text.count(old) == 1
    refused = compiled(headers, text.replace(old, new), "-fsyntax-only")
    assert refused.returncode != 0
    assert "static assertion failed" in refused.stderr


def test_rows_and_structures_have_the_offsets_of_c(headers: Path, tmp_path: Path) -> None:
    """numpy's row, `Summary`, and librdkafka's partition list, field by field."""
    places: dict[str, int] = {}
    for name, (_, at, *_) in (native.ROW.fields or {}).items():
        places[f"offsetof(row, {name})"] = at
    places["sizeof(row)"] = native.ROW.itemsize
    structures: list[tuple[type[ctypes.Structure], str, dict[str, str]]] = [
        (native.Summary, "summary", {}),
        (librdkafka.Partition, "rd_kafka_topic_partition_t", {"private": "_private"}),
        (librdkafka.Partitions, "rd_kafka_topic_partition_list_t", {}),
    ]
    for structure, name, renamed in structures:
        for field, *_ in structure._fields_:  # pyright: ignore[reportPrivateUsage] - ctypes has no public list of fields
            places[f"offsetof({name}, {renamed.get(field, field)})"] = getattr(structure, field).offset
        places[f"sizeof({name})"] = ctypes.sizeof(structure)
    lines = "".join(f'    printf("%zu\\n", {expression});\n' for expression in places)
    program = f'#include "{SOURCE}"\n#include <stdio.h>\nint main(void) {{\n{lines}    return 0;\n}}\n'
    binary = tmp_path / "layout"
    assert compiled(headers, program, "-o", str(binary)).stderr == ""
    printed = subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(places, map(int, printed), strict=True)) == places


def test_functions_that_are_called_by_ctypes_are_public(headers: Path) -> None:
    header = (headers / "librdkafka/rdkafka.h").read_text()
    called = {*librdkafka._LIBRDKAFKA, *native._CALLS}  # pyright: ignore[reportPrivateUsage]
    assert [name for name in sorted(called) if not re.search(rf"\b{name}\s*\(", header)] == []


def test_a_queue_that_cannot_be_read_raises_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for an empty one. By a copy of the compiled loops, whose calls are given here."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)

    def fail(_queue: int, _timeout_ms: int, _messages: int, _size: int) -> int:
        return -1

    failing = prototype(fail)
    own = tmp_path / "loops.so"
    shutil.copy(native._LOOPS, own)  # pyright: ignore[reportPrivateUsage]
    loops: Any = librdkafka.typed(ctypes.CDLL(str(own)), native._NATIVE)  # pyright: ignore[reportPrivateUsage]
    calls = (ctypes.c_void_p * len(native._CALLS))()  # pyright: ignore[reportPrivateUsage]
    calls[0] = ctypes.cast(failing, ctypes.c_void_p).value
    loops.herdmesh_bind(ctypes.addressof(calls))
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "none"})
    monkeypatch.setattr(native, "loops", lambda: loops)
    intake = BatchConsumer(consumer)
    try:
        with pytest.raises(KafkaException, match="the queue of records cannot be read"):
            intake.take(10, 0.0)
    finally:
        intake.close()
        consumer.close()
