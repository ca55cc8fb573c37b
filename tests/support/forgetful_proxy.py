"""A proxy in front of a real broker that can, once, act like a broker that was told to stop: it answers a metadata
request without naming a broker, and cuts the connection. Before that it can withhold the answer to a commit, like a
broker that died before it answered. It can also refuse one batch of records, like a broker whose partition is not there
yet, while it accepts those behind it.

Owns the rewriting of the broker's address to the proxy's in answers, so that all traffic goes through here. Knows
these answers in the versions that confluent-kafka 2.16 requests; another version fails the requesting test.

Invariant: nothing else is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncGenerator

_PRODUCE, _PRODUCE_VERSION = 0, 10
_METADATA, _METADATA_VERSION = 3, 13
_FIND_COORDINATOR, _FIND_COORDINATOR_VERSION = 10, 2
_END_TRANSACTION = 26
_UNKNOWN_TOPIC_OR_PARTITION = 3


class ForgetfulProxy:
    """Listens on `port` while the context of `forgetful_proxy` lasts."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self.port = 0
        self._forgetting = False
        self._forgot = asyncio.Event()
        self._swallowing: asyncio.Event | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._refusing = b""
        self._refusal = b""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def forget(self) -> None:
        """Answer the next metadata request without a broker, and cut off that client and all others. Returns once that
        is done: from then on it passes the broker's answers again.
        """
        self._forgot.clear()
        self._forgetting = True
        await self._forgot.wait()
        self._forgetting = False

    async def forget_commit(self) -> None:
        """The same, once the broker has ended a transaction, of which no client gets the answer."""
        self._swallowing = asyncio.Event()
        await self._swallowing.wait()
        await self.forget()
        self._swallowing = None

    def refuse_batch(self, topic: str) -> None:
        """Keep the next batch of records for partition 0 of the topic from the broker. Its client gets the refusal just
        before the answer to the following batch, which should be in flight by then.
        """
        self._refusing = topic.encode()

    @property
    def has_refused(self) -> bool:
        """True once the client got the refusal."""
        return not (self._refusing or self._refusal)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client's connection."""
        self._writers.add(writer)
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        except OSError:
            writer.close()
            return
        self._writers.add(to_writer)
        asked: dict[int, tuple[int, int]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, to_writer, asked))
                group.create_task(self._answers(to_reader, writer, asked))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, to_writer):
                self._writers.discard(one)
                one.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
    ) -> None:
        while True:
            frame = await _frame(reader)
            key, version, correlation = struct.unpack_from(">hhi", frame)
            if key == _PRODUCE and self._refusing and self._refusing in frame:
                assert version == _PRODUCE_VERSION, f"the client sends records in version {version}"
                self._refusal, self._refusing = _refused(correlation, self._refusing), b""
                continue
            asked[correlation] = (key, version)
            writer.write(struct.pack(">i", len(frame)) + frame)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
    ) -> None:
        while True:
            frame = await _frame(reader)
            (correlation,) = struct.unpack_from(">i", frame)
            key, version = asked.pop(correlation)
            if key == _METADATA:
                assert version == _METADATA_VERSION, f"the client asks for metadata of version {version}"
                frame = self._metadata(frame)
            elif key == _FIND_COORDINATOR:
                assert version == _FIND_COORDINATOR_VERSION, f"the client asks for a coordinator in version {version}"
                frame = frame[:-4] + struct.pack(">i", self.port)  # it ends with the address
            elif key == _PRODUCE and self._refusal:
                writer.write(struct.pack(">i", len(self._refusal)) + self._refusal)
                self._refusal = b""
            elif key == _END_TRANSACTION and self._swallowing is not None:
                self._swallowing.set()
                continue
            writer.write(struct.pack(">i", len(frame)) + frame)
            await writer.drain()
            if key == _METADATA and self._forgetting:
                for one in list(self._writers):
                    one.close()
                self._forgot.set()
                raise ConnectionResetError

    def _metadata(self, frame: bytes) -> bytes:
        """The answer with the proxy's port, or without a broker. Handles one broker, as our tests have."""
        at = 4 + 1 + 4  # correlation id, no tags, throttle time
        assert frame[at] == 2, "one broker"
        start = at + 1 + 4  # its id
        host = frame[start] - 1
        port = start + 1 + host
        if not self._forgetting:
            return frame[:port] + struct.pack(">i", self.port) + frame[port + 4 :]
        rack = port + 4
        rest = rack + 1 + max(0, frame[rack] - 1) + 1  # no tags
        return frame[:at] + b"\x01" + frame[rest:]

    def cut(self) -> None:
        """Cut all connections."""
        for one in list(self._writers):
            one.close()


def _refused(correlation: int, topic: bytes) -> bytes:
    """The answer that refuses a request with one batch, for partition 0."""
    no_tags, one, none = b"\x00", b"\x02", b"\x01"
    partition = struct.pack(">ihqqq", 0, _UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1) + none + b"\x00" + no_tags
    topics = one + bytes([len(topic) + 1]) + topic + one + partition + no_tags
    return struct.pack(">i", correlation) + no_tags + topics + struct.pack(">i", 0) + no_tags


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@contextlib.asynccontextmanager
async def forgetful_proxy(broker_port: int) -> AsyncGenerator[ForgetfulProxy]:
    """A proxy in front of the broker at this port of 127.0.0.1."""
    proxy = ForgetfulProxy(broker_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
