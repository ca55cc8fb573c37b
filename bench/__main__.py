"""Kafka JSON -> three transformations -> file: a real Herdmesh worker against Java Connect 4.3.1, tasks 1 and 2.

Same broker, same topic (166-byte JSON values, 2 partitions), same config, one after the other, several rounds in turn.
Two rates each: `total` from the create call to the last line in the file, `steady` from the first line on. The ratio of
the medians is what counts; the machine's own speed cancels out.

    make bench ARGS="--records 1000000 --rounds 3"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.client import HerderClient
from herdmesh.cli.commands.apply import to_properties
from herdmesh.devstack.stack import Stack, StackSettings
from herdmesh.rpc.request_ids import new_request_id
from tests.support.java_connect import JavaConnect

TOPIC = "bench-input"
PARTITIONS = 2
#: a JVM meant for speed, as an operator would start it
JAVA_JVM = ("-Xms256M", "-Xmx2G", "-XX:+UseG1GC")
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Timing:
    """Seconds from the create call to the first and to the last line."""

    first_s: float
    last_s: float

    def rates(self, records: int) -> tuple[float, float]:
        return records / self.last_s, records / max(self.last_s - self.first_s, 1e-6)


def write_input(bootstrap: str, records: int) -> None:
    """The records of the design's feasibility figures."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
        }
    )
    for number in range(records):
        value = json.dumps(
            {
                "id": number,
                "name": f"user{number % 1000}",
                "email": f"user{number}@example.com",
                "amount": number * 0.01,
                "ts": 1_700_000_000_000 + number,
                "note": "the quick brown fox jumps over the lazy dog",
            }
        ).encode()
        while True:
            try:
                producer.produce(TOPIC, value, key=str(number).encode())
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def sink_config(file: Path, tasks: int) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": str(tasks),
        "topics": TOPIC,
        "file": str(file),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "consumer.override.max.poll.records": "5000",
        "transforms": "src,mask,ren",
        "transforms.src.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.src.static.field": "source",
        "transforms.src.static.value": "x",
        "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
        "transforms.mask.fields": "email",
        "transforms.ren.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.ren.renames": "note:comment",
    }


def wait_for_lines(file: Path, lines: int, started_s: float) -> Timing:
    """Count newlines as the file grows. Blocking."""
    first_s = 0.0
    found = 0
    while not file.exists():
        _check_time(started_s, found, lines)
        time.sleep(0.005)
    with file.open("rb") as reader:
        while found < lines:
            chunk = reader.read(4 << 20)
            if chunk:
                if not first_s:
                    first_s = time.monotonic() - started_s
                found += chunk.count(b"\n")
            else:
                _check_time(started_s, found, lines)
                time.sleep(0.01)
    return Timing(first_s, time.monotonic() - started_s)


def _check_time(started_s: float, found: int, lines: int) -> None:
    if time.monotonic() - started_s > _TIMEOUT_S:
        raise TimeoutError(f"{found} of {lines} lines after {_TIMEOUT_S:g} s")


async def run_herdmesh(client: HerderClient, folder: Path, tasks: int, round_number: int, records: int) -> Timing:
    name = f"bench-{tasks}-{round_number}"
    file = folder / f"{name}.txt"
    request = messages.UpdateConnectorRequest(
        request_id=new_request_id(), name=name, config=to_properties(sink_config(file, tasks)), allow_missing=True
    )
    started_s = time.monotonic()
    await client.call(lambda stub: stub.UpdateConnector, request)
    timing = await asyncio.to_thread(wait_for_lines, file, records, started_s)
    await client.call(
        lambda stub: stub.DeleteConnector, messages.DeleteConnectorRequest(request_id=new_request_id(), name=name)
    )
    await asyncio.to_thread(file.unlink)
    return timing


def run_java(java: JavaConnect, folder: Path, tasks: int, round_number: int, records: int) -> Timing:
    name = f"java-bench-{tasks}-{round_number}"
    file = folder / f"{name}.txt"
    started_s = time.monotonic()
    java.put_config(name, sink_config(file, tasks))
    timing = wait_for_lines(file, records, started_s)
    java.delete(name)
    file.unlink()
    return timing


async def main(records: int, rounds: int, say: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-") as temporary:
        folder = Path(temporary)
        stack = Stack(StackSettings(folder / "stack", workers=1, usual_ports=False))
        await stack.start()
        try:
            say(f"writing {records} records")
            await asyncio.to_thread(write_input, stack.broker.bootstrap, records)
            with JavaConnect(stack.broker.bootstrap, folder / "java", jvm=JAVA_JVM) as java:
                async with HerderClient(stack.state.herder) as client:
                    for tasks in (1, 2):
                        ours: list[Timing] = []
                        theirs: list[Timing] = []
                        for round_number in range(rounds):
                            ours.append(await run_herdmesh(client, folder, tasks, round_number, records))
                            theirs.append(await asyncio.to_thread(run_java, java, folder, tasks, round_number, records))
                        report(say, tasks, records, ours, theirs)
        finally:
            await stack.stop()


def report(say: Callable[[str], None], tasks: int, records: int, ours: list[Timing], theirs: list[Timing]) -> None:
    for index, kind in enumerate(("total", "steady")):
        mine = statistics.median(one.rates(records)[index] for one in ours)
        java = statistics.median(one.rates(records)[index] for one in theirs)
        say(
            f"{tasks} task{'s' if tasks > 1 else ''}, {kind}: herdmesh {mine:,.0f} records/s, "
            f"Java Connect {java:,.0f} records/s, ratio {mine / java:.2f}"
        )
    first_mine = statistics.median(one.first_s for one in ours)
    first_java = statistics.median(one.first_s for one in theirs)
    say(f"{tasks} task{'s' if tasks > 1 else ''}, first line after {first_mine:.2f} s, Java {first_java:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(main(options.records, options.rounds, lambda line: print(line, flush=True)))
