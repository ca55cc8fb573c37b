"""The process from which runs are forked: everything imported, and no threads, because none survives a fork. Arrow's
allocator has one of its own, which handles forks.
"""

from __future__ import annotations

import subprocess
import sys

_PROCESS = """
import time
from pathlib import Path
from herdmesh.worker.spark import daemon

missing = daemon.preload()
own = Path("/proc/self/comm").read_text().strip()
until_s = time.monotonic() + 5
while True:
    names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    # A thread names itself: until it does it has the name of the one that started it.
    if names.count(own) == 1 or time.monotonic() > until_s:
        break
print(missing, *names)
"""


def test_preloading_imports_everything_and_starts_no_thread() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROCESS], capture_output=True, text=True, check=True, timeout=60)
    missing, *threads = ran.stdout.split()
    assert missing == "[]"
    assert len([name for name in threads if name != "jemalloc_bg_thd"]) == 1
