"""Client of `RunService` in a run: lives in the executor's Python process, next to the record loop.

Owns the stream of one run to the worker; the channel belongs to the process, whose runs take turns on it. Both are
created after the fork. Invariants:

- A process that waits for its order uses no processor time.
- No call of the loop's thread blocks or raises for a broken stream, except `store_offsets`, whose caller must know.
- The outgoing queue has at most one progress report (the latest wins), offsets to store, some log lines, and one last
  word.
- A broken stream becomes a `Stop`, because nobody needs a run without a worker.
- The sending thread reports that the loop moves; it does not need the loop's thread for that (`run_watch`).
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import grpc
import msgspec

from herdmesh.api.worker.v1 import run_service_pb2, run_service_pb2_grpc
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import waits
from herdmesh.engine.runtime import (
    Command,
    EndWarmRun,
    ProgressReport,
    Rate,
    RunSpec,
    Share,
    Stop,
    TaskFailed,
    progress_ticks,
)
from herdmesh.session import wire as session_wire
from herdmesh.worker import wire
from herdmesh.worker.errors import RunLost
from herdmesh.worker.log_lines import LineQueue
from herdmesh.worker.run.run_watch import RunWatch

_LAST_WORD_TIMEOUT_S: Final = 5.0
_STORE_TIMEOUT_S: Final = 30.0
_ENDED: Final = "the worker ended the stream"
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # On a cluster a worker's machine can vanish without closing its connections.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Parameters of a process: its worker's address, and the proof that the worker launched it."""

    process_id: str
    address: str
    token: str

    def to_text(self) -> str:
        """The launch as a line of text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> Launch:
        """The inverse of `to_text`. Raises msgspec.ValidationError for any other text."""
        return msgspec.json.decode(text, type=cls)


@dataclass(frozen=True, slots=True)
class RunOrder:
    """Order of a waiting process: the run's spec and log levels."""

    spec: RunSpec
    log_levels: Mapping[str, int] = field(default_factory=dict[str, int])
    """Levels of loggers that were changed in the worker, Python's numbers by name."""
    stalled_ms: int = 30_000
    """Time without progress after which the loop is shown as stalled."""

    def to_wire(self) -> run_service_pb2.RunResponse:
        """The order as a message of the stream."""
        return run_service_pb2.RunResponse(order=run_service_pb2.RunOrder(packed=msgspec.msgpack.encode(self)))

    @classmethod
    def from_wire(cls, message: run_service_pb2.RunOrder) -> RunOrder:
        """The inverse of `to_wire`. Raises msgspec.ValidationError for any other message."""
        return msgspec.msgpack.decode(message.packed, type=cls)


def rehearse() -> None:
    """Create and close a channel: the first one of a process initialises gRPC. Connects to nobody; its threads end a
    moment after this returns.
    """
    grpc.insecure_channel("127.0.0.1:1", options=_OPTIONS).close()


def channel_to(launch: Launch) -> grpc.Channel:
    """The channel to the process' worker, for the streams of all its runs. The caller closes it."""
    return grpc.insecure_channel(launch.address, options=_OPTIONS)


class WorkerLink:
    """`RunLink` over gRPC. Use as a context manager: entering sends hello; `order` waits for the order."""

    def __init__(self, launch: Launch, channel: grpc.Channel) -> None:
        """`channel`: from `channel_to`, which outlives the link."""
        self._launch = launch
        self._channel = channel
        self._changed = threading.Condition()
        self._latest: ProgressReport | None = None
        self._last_word: run_service_pb2.RunRequest | None = None
        self._to_store: run_service_pb2.StoreOffsets | None = None
        self._store_number = 0
        self._stored: run_service_pb2.OffsetsStored | None = None
        self._broken: str | None = None
        self._order: run_service_pb2.RunOrder | None = None
        self._watch: RunWatch | None = None
        self._moved_ms = 0
        self._reading: Any = None
        self._ordered = threading.Event()
        self._over = threading.Event()
        self._commands: deque[Command] = deque()
        self._wake_loop: Callable[[], None] = _nobody_waits
        self.log = LineQueue(self._wake)
        """Copies of log lines for the worker."""

    def __enter__(self) -> WorkerLink:
        stub = run_service_pb2_grpc.RunServiceStub(self._channel)
        self._reading = responses = stub.Run(self._requests())
        threading.Thread(target=self._read, args=(responses,), name="run link", daemon=True).start()
        return self

    def order(self) -> RunOrder | None:
        """Wait for the order, however long it takes; None when the worker dismisses this process. From here on the loop
        is watched.

        Raises RunLost when the worker cannot be reached, or does not know this process.
        """
        self._ordered.wait()
        if self._order is not None:
            order = RunOrder.from_wire(self._order)
            self._watch_loop(order)
            return order
        if self._broken != _ENDED:
            raise RunLost(f"the worker did not accept the process: {self._broken}")
        return None

    def _watch_loop(self, order: RunOrder) -> None:
        self._moved_ms = _now_ms()
        with self._changed:
            self._watch = RunWatch(order.stalled_ms, order.spec.poll_interval_max_ms, time.monotonic())
            if any(isinstance(command, Stop) for command in self._commands):
                self._watch.on_stop_command()
            self._changed.notify_all()

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.over()
        with self._changed:
            self._broken = self._broken or "closed"
            self._changed.notify_all()
        if self._reading is not None:
            self._reading.cancel()

    def _wake(self) -> None:
        """Wake the sending thread; called with a logger's lock, so it never waits for `_changed`, whose owner may log.
        Lines that miss their wake-up go out when the loop is looked at next, within two seconds.
        """
        if self._changed.acquire(blocking=False):
            try:
                self._changed.notify_all()
            finally:
                self._changed.release()

    def progress(self, progress: ProgressReport) -> None:
        """Queue a progress report; it replaces a waiting one, whose measures are added."""
        with self._changed:
            waiting = self._latest
            if waiting is not None:
                progress = replace(progress, measures=waiting.measures + progress.measures)
            self._latest = progress
            self._changed.notify_all()

    def commands(self) -> Sequence[Command]:
        """Commands of the worker since the last call."""
        progress_ticks.moved()
        found: list[Command] = []
        while self._commands:
            found.append(self._commands.popleft())
        return found

    def wake_with(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each new command."""
        self._wake_loop = wake

    def store_offsets(self, offsets: Mapping[bytes, bytes | None]) -> None:
        """Send the offsets and wait for the reply. Raises TaskFailed."""
        with self._changed:
            self._store_number += 1
            number = self._store_number
            entries = [run_service_pb2.StoredOffset(key=key, value=value) for key, value in offsets.items()]
            self._to_store = run_service_pb2.StoreOffsets(number=number, offsets=entries)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_stored(number) or self._broken, _STORE_TIMEOUT_S)
            stored = self._stored if self._is_stored(number) else None
        if stored is None or stored.error:
            why = stored.error if stored is not None else self._broken or f"no answer in {_STORE_TIMEOUT_S:g} s"
            raise TaskFailed(
                f"the offsets could not be stored: {why}; the records after the last stored offset are sent again",
                ErrorClass.RETRIABLE,
            )

    def _is_stored(self, number: int) -> bool:
        return self._stored is not None and self._stored.number == number

    def last_word(self, request: run_service_pb2.RunRequest) -> bool:
        """Send `finished` or `failed`, after the waiting messages. False when the worker did not receive it in time."""
        if self._watch is not None:
            self._watch.over()
        with self._changed:
            self._last_word = request
            self._changed.notify_all()
        self._over.wait(_LAST_WORD_TIMEOUT_S)
        return self._broken is None

    def _requests(self) -> Iterator[run_service_pb2.RunRequest]:
        """The outgoing messages. Called by gRPC's thread; ends with the last word, which half-closes the stream."""
        launch = self._launch
        hello = run_service_pb2.RunHello(process_id=launch.process_id, pid=os.getpid(), token=launch.token)
        yield run_service_pb2.RunRequest(hello=hello)
        while True:
            with self._changed:
                if not (self._latest or self._to_store or self._last_word or self._broken or self.log):
                    self._changed.wait(self._next_look_s())
                if self._broken is not None:
                    return
                progress, self._latest = self._latest, None
                to_store, self._to_store = self._to_store, None
                last_word = self._last_word
            if self.log:
                yield wire.run_log_to(*self.log.take())
            if (found := self._look()) is not None:
                yield run_service_pb2.RunRequest(pulse=found)
            if progress is not None:
                yield run_service_pb2.RunRequest(progress=wire.progress_to(progress))
            if to_store is not None:
                yield run_service_pb2.RunRequest(store_offsets=to_store)
            if last_word is not None:
                yield last_word
                return

    def _next_look_s(self) -> float | None:
        """Time until the next check of the loop; None for a process without an order, which never wakes for one."""
        return None if self._watch is None else self._watch.wait_s(time.monotonic())

    def _look(self) -> run_service_pb2.RunPulse | None:
        """The report about the loop to send now; None = none."""
        now_s = time.monotonic()
        if self._watch is None or self._watch.wait_s(now_s) > 0:
            return None
        silent_ms = self._watch.look(now_s)
        if silent_ms == 0:
            self._moved_ms = _now_ms()
        found = run_service_pb2.RunPulse(silent_ms=silent_ms)
        found.moved_time.FromMilliseconds(self._moved_ms)
        wait = waits.current().shown()
        if wait is not None:
            found.wait.CopyFrom(session_wire.wait_to(wait))
        return found

    def _read(self, responses: Iterator[run_service_pb2.RunResponse]) -> None:
        why: str | None = None
        try:
            for response in responses:
                self._take(response)
                self._wake_loop()
            if self._last_word is None:
                why = _ENDED
        except grpc.RpcError as error:
            why = str(error.details()) if isinstance(error, grpc.Call) else str(error)
        with self._changed:
            self._broken = self._broken or why
            self._changed.notify_all()
        if why is not None:
            self._commands.append(Stop(f"the connection to the worker is broken: {why}"))
            self._wake_loop()
        self._ordered.set()
        self._over.set()

    def _take(self, response: run_service_pb2.RunResponse) -> None:
        match response.WhichOneof("message"):
            case "order":
                self._order = response.order
                self._ordered.set()
            case "stop":
                with self._changed:
                    self._commands.append(Stop(response.stop.reason))
                    if self._watch is not None:
                        self._watch.on_stop_command()
            case "rate":
                self._commands.append(Rate(response.rate.records_per_second, response.rate.bytes_per_second))
            case "share":
                self._commands.append(Share(response.share.run_ms))
            case "rest":
                self._commands.append(EndWarmRun())
            case "offsets_stored":
                with self._changed:
                    self._stored = response.offsets_stored
                    self._changed.notify_all()
            case _:
                return


def _nobody_waits() -> None:
    """Before the loop begins."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
