"""Set-up of the daemon before it forks: only what each fork needs remains, and no run depends on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from herdmesh.worker.spark import daemon

pytestmark = pytest.mark.timed

#: A fork of a process that did the rehearsal, or not, calls a server over gRPC and creates a Kafka client; prints the
#: new threads at the fork, how many pages the first channel took, and the server's received message.
PROGRAM = """
import os, resource, sys
from concurrent import futures
from pathlib import Path
from herdmesh.worker.spark import daemon

daemon.preload()
before = len(list(Path("/proc/self/task").iterdir()))
if sys.argv[1] == "rehearsed":
    daemon.rehearse()
print(len(list(Path("/proc/self/task").iterdir())) - before, flush=True)
if os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))

import grpc
from confluent_kafka import Producer

faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
grpc.insecure_channel("127.0.0.1:1").close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults, flush=True)
server = grpc.server(futures.ThreadPoolExecutor(1))
echo = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", {"Echo": echo})])
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
with grpc.insecure_channel(address) as channel:
    print(channel.unary_unary("/test/Echo")(b"heard", timeout=20).decode(), flush=True)
server.stop(0).wait(20)
Producer({"log_level": 0}).flush(0)
os._exit(0)
"""


def of_a_fork(how: str) -> tuple[int, int, str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=120, check=True)
    threads, faults, heard = done.stdout.split()
    return int(threads), int(faults), heard


@pytest.mark.skipif(not daemon.THREADS.is_dir(), reason="threads are counted on Linux only")
def test_the_rehearsal_leaves_no_thread_and_its_set_up_is_in_every_fork() -> None:
    threads, faults, heard = of_a_fork("rehearsed")
    assert (threads, heard) == (0, "heard")
    assert faults < of_a_fork("plain")[1] / 2


#: A daemon one of whose libraries does not end a thread, up to the point where it would begin to fork.
STAYS = """
import sys
import threading
from pathlib import Path
import pyspark.daemon
from herdmesh.engine.librdkafka import clients
from herdmesh.worker.spark import daemon

def stays():
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    Path(f"/proc/self/task/{thread.native_id}/comm").write_text("rdk:that-stays")

def manager():
    print(*sys.argv[1:], *[(one / "comm").read_text() for one in Path("/proc/self/task").iterdir()], flush=True)

clients.rehearse = stays
daemon.REHEARSAL_TIMEOUT_S = 0.5
pyspark.daemon.manager = manager
daemon.main()
"""


@pytest.mark.skipif(not daemon.THREADS.is_dir(), reason="threads are counted on Linux only")
def test_a_daemon_whose_rehearsal_fails_logs_why_and_forks_without_it(tmp_path: Path) -> None:
    program = tmp_path / "daemon.py"
    program.write_text(STAYS)
    command = [sys.executable, str(program), "pyspark.worker"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split()[:2] == ["pyspark.worker", daemon.UNREHEARSED]
    assert "rdk:that-stays" in done.stderr
    assert "rdk:that-stays" not in done.stdout, "it would be missing in each fork"
