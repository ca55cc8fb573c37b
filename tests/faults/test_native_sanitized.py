"""native.c under AddressSanitizer and UBSan: the engine's tests of it, in a process that has both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sizes import soak_or
from tests.support.tally import note

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "libs/core/src/herdmesh/engine/librdkafka/native.c"
FOLDER = "libs/core/tests/engine/librdkafka"
TESTS = ("test_batch_consumer.py", "test_column_queue.py", "test_queueing.py", "test_native_layout.py")
#: A write past the end of the array of places, which the other tests need not notice.
FAULT = ("places[at] = (uint64_t)(value - values);", "places[4 * count] = (uint64_t)(value - values);")


@pytest.fixture(scope="module")
def sanitizer() -> str:
    """The library that must be loaded before Python's own."""
    if not soak_or(0, 1):
        pytest.skip("minutes with a broker of its own: make soak ARGS=native")
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout
    return found.strip()


@pytest.mark.kafka
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("is_broken", [False, True], ids=["as it is", "with a write past an array"])
def test_native_loops_have_no_memory_error(sanitizer: str, tmp_path: Path, is_broken: bool) -> None:
    text = SOURCE.read_text()
    if is_broken:
        assert text.count(FAULT[0]) == 1
        text = text.replace(*FAULT)
    library = tmp_path / "_native_sanitized.so"
    subprocess.run(
        ["cc", "-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-shared", "-fPIC",
         "-x", "c", "-o", str(library), "-"], input=text, text=True, check=True,
    )  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", "-p", "tests.support.sanitized_loops",
         *(f"{FOLDER}/{name}" for name in TESTS)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={
            **os.environ, "LD_PRELOAD": sanitizer, "HERDMESH_TEST_LOOPS": str(library),
            "ASAN_OPTIONS": f"detect_leaks=0:halt_on_error=1:log_path={tmp_path / 'sanitizer'}",
            "PYTHONMALLOC": "malloc",
        },
    )  # fmt: skip
    output = ran.stdout + ran.stderr
    reports = "".join(report.read_text() for report in tmp_path.glob("sanitizer.*"))
    if is_broken:
        assert ran.returncode != 0
        assert "AddressSanitizer: heap-buffer-overflow" in reports
        return
    assert (ran.returncode, reports) == (0, ""), output[-4_000:]
    (passed,) = re.findall(r"(\d+) passed", output)
    note("native.c with AddressSanitizer and UBSan", runs=1, operations=int(passed), faults={})
