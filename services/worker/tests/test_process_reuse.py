"""Whether a process is fit for another run, in processes that leave something behind; and one process with two runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A process that does something as a run might, and then asks whether it may execute another run.
PROGRAM = """
import logging, sys, threading, time
from confluent_kafka import Producer
from herdmesh.connect.config import keep_secret, redacted
from herdmesh.rpc import process
from herdmesh.worker.spark import process_reuse

process_reuse.THREADS_TIMEOUT_S = 0.3
state = process_reuse.ProcessState()
keep = []
{deed}
print(state.renew())
print(redacted("of orders-db"), sorted(process._everywhere))
"""
#: What it does, and why the process must end.
LEFT = {
    "nothing": ("pass", ""),
    "secrets and log fields": ("keep_secret(['orders-db']); process.log_with(unit='u', run_id='r', trace_id='t')", ""),
    "a closed client": ("Producer({'log_level': 0}).flush(0)", ""),
    "a client in a cycle": ("one = [Producer({'log_level': 0})]; one.append(one); del one", ""),
    "an open client": (
        "keep.append(Producer({'log_level': 0}))",
        "threads of the run are left: rdk:main, rdk:broker-1",
    ),
    "a thread": (
        "threading.Thread(target=time.sleep, args=(20,), name='lane', daemon=True).start()",
        "threads of the run are left: lane",
    ),
    "a thread that ends": ("threading.Thread(target=time.sleep, args=(0.1,)).start()", ""),
    "memory": ("keep.append(bytearray(80 << 20))", "it has grown by 80 MB"),
    "many runs": ("state._runs = 499", "it has executed 500 runs"),
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.skipif(sys.platform != "linux", reason="threads of clients are listed on Linux only")
def test_a_process_executes_another_run_only_if_nothing_is_left(left: str) -> None:
    deed, reason = LEFT[left]
    program = PROGRAM.format(deed=deed)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    said, rest = done.stdout.splitlines()
    assert said == reason
    assert rest == "of orders-db []", "neither the secrets nor the log fields of the run before"
