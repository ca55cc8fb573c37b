"""Processes of plugins, as the worker sees them: one for each plugin folder in use.

Owns the processes and the connections to them. `effects.plugins.remote_connectors` defines the calls. Calls block, so
they are made in threads, any number at a time. Invariants: every call returns or raises, at the latest when the process
dies. The next call starts a dead process anew, and instances that were started in it are informed of its death.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Any, Final, assert_never

import msgspec
import structlog

from herdmesh.connect.config import redacted, secrets_kept_for_this_answer
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.spi import ConnectorContext, PluginImports, Wait
from herdmesh.engine.runtime import TaskFailed
from herdmesh.worker.output_limit import OutputLimit
from herdmesh.worker.plugin_messages import (
    Answer,
    Call,
    CallFailure,
    CommittedOffsets,
    OffsetsWanted,
    Raised,
    TasksOutdated,
    WaitChanged,
    failure_of,
    raised,
)

_OUTPUT_LINE_MAX_BYTES: Final = 65_536
_ENDS_WITHIN_S: Final = 2.0
"""Time after which a process that closed its end of the connection is killed; callers learn of its end only then."""
_FROM_PLUGIN: Final = Answer | TasksOutdated | Raised | OffsetsWanted | WaitChanged
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    done: threading.Event = field(default_factory=threading.Event)
    answer: Answer | None = None


class Line:
    """Connection to one process, from its start to its death."""

    def __init__(self, imports: PluginImports) -> None:
        """Start the process. Raises OSError."""
        self._imports = imports
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._instances: dict[str, ConnectorContext] = {}
        self._number = 0
        self._closed = False
        self._over = ""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "herdmesh.worker.plugin_process", str(theirs.fileno())]
            self._process = subprocess.Popen(
                [*command, msgspec.json.encode(imports).decode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
            )
        self._connection = Connection(ours.detach())
        assert self._process.stdout is not None
        name = f"plugin {imports.folder}"
        threading.Thread(target=self._read, name=name, daemon=True).start()
        output = self._process.stdout, imports.folder
        threading.Thread(target=_pass_on, args=output, name=f"{name} output", daemon=True).start()

    @property
    def alive(self) -> bool:
        """False once the process is known to have died."""
        return not self._over

    @property
    def ended(self) -> str:
        """How the process died, "" = it is not known to have died."""
        return self._over

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_idle(self) -> bool:
        """True when no instance runs in the process and no call is pending."""
        with self._lock:
            return not self._instances and not self._waiting

    def lend(self, instance: str, context: ConnectorContext) -> None:
        """Give the context to this instance; the context gets an error when the process dies."""
        with self._lock:
            if not self._over:
                self._instances[instance] = context
                return
        context.raise_error(self._died())

    def take_back(self, instance: str) -> None:
        """Ignore all further messages of the instance."""
        with self._lock:
            self._instances.pop(instance, None)

    def call(self, what: str, entry: str, *arguments: Any, instance: str = "", timeout_s: float | None = None) -> Any:
        """Call the process and return the result.

        Raises:
            ConfigError, RetriableError, ImportError: as the author's code did.
            TaskFailed: for anything else that it raised, in its class; RETRIABLE when the process died or did not
                answer within `timeout_s`.
        """
        waiting = _Waiting()
        with self._lock:
            if self._over:
                raise self._died()
            self._number += 1
            number = self._number
            self._waiting[number] = waiting
        call = Call(
            number=number, what=what, entry=entry, instance=instance, arguments=arguments,
            secrets=secrets_kept_for_this_answer(),
        )  # fmt: skip
        self._send(call)
        if not waiting.done.wait(timeout_s):
            raise TaskFailed(
                f"the plugin {self._imports.folder} did not answer within {timeout_s:g} s", ErrorClass.RETRIABLE
            )
        if waiting.answer is None:
            raise self._died()
        if waiting.answer.failure is not None:
            raise raised(waiting.answer.failure)
        return waiting.answer.value

    def close(self) -> None:
        """Kill the process. The caller has stopped all instances in it."""
        self._closed = True
        self._process.kill()
        self._process.wait()

    def _ended(self) -> str:
        """How the process ended, after it closed its end of the connection. A process that runs on without a connection
        is useless and is killed, but not at once: one that exits closes the connection before its exit code is known.
        """
        try:
            code = self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return "it closed its connection to the worker, and was ended"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _read(self) -> None:
        try:
            while True:
                self._on_message(msgspec.json.decode(self._connection.recv_bytes(), type=_FROM_PLUGIN))
        except (EOFError, OSError):
            pass  # the process ended
        except Exception:  # noqa: BLE001 - pending calls must fail rather than wait for ever
            _log.exception("plugin_line_unreadable", folder=self._imports.folder)
        how = self._ended()
        with self._lock:
            self._over = how
            waiting_now, self._waiting = list(self._waiting.values()), {}
            instances, self._instances = list(self._instances.values()), {}
        with self._sending:  # senders get an OSError from now on
            self._connection.close()
        for waiting in waiting_now:
            waiting.done.set()
        if self._closed:
            return
        _log.error("plugin_process_died", folder=self._imports.folder, how=how, connectors=len(instances))
        for context in instances:
            context.waits.show_remote_wait(None)
            context.raise_error(self._died())

    def _on_message(self, message: Answer | TasksOutdated | Raised | OffsetsWanted | WaitChanged) -> None:
        if isinstance(message, Answer):
            with self._lock:
                waiting = self._waiting.pop(message.number, None)
            if waiting is not None:
                waiting.answer = message
                waiting.done.set()
            return
        with self._lock:
            context = self._instances.get(message.instance)
        if context is None:
            if isinstance(message, OffsetsWanted):
                failure = CallFailure(kind="failed", message="the connector was stopped", error_class="UNKNOWN")
                self._send(CommittedOffsets(number=message.number, failure=failure))
            return
        match message:
            case TasksOutdated():
                context.request_task_reconfiguration()
            case Raised(failure=failure):
                context.raise_error(raised(failure))
            case WaitChanged():
                context.waits.show_remote_wait(_wait_of(message))
            case OffsetsWanted():  # reads from Kafka, in a thread so that the connection is read meanwhile
                threading.Thread(target=self._send_offsets, args=(message, context), daemon=True).start()
            case _:
                assert_never(message)

    def _send_offsets(self, wanted: OffsetsWanted, context: ConnectorContext) -> None:
        try:
            offsets = tuple(None if one is None else dict(one) for one in context.committed_offsets(wanted.partitions))
            self._send(CommittedOffsets(number=wanted.number, offsets=offsets))
        except Exception as error:  # noqa: BLE001 - raised in the other process
            self._send(CommittedOffsets(number=wanted.number, failure=failure_of(error)))

    def _send(self, message: Call | CommittedOffsets) -> None:
        packed = msgspec.json.encode(message)
        with self._sending, contextlib.suppress(OSError):  # the process is dying: `_read` reports it
            self._connection.send_bytes(packed)

    def _died(self) -> TaskFailed:
        return TaskFailed(
            f"the process of the plugin {self._imports.folder} died ({self._over}) with all connectors that ran in it; "
            "restart the connector, which starts it again",
            ErrorClass.RETRIABLE,
        )


class PluginProcess:
    """The process of one plugin folder, started on demand."""

    def __init__(self, imports: PluginImports) -> None:
        self._imports = imports
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._closed = False
        self._was_idle = False

    def line(self) -> Line:
        """The connection to the process, which is started if there is none. Raises TaskFailed when it cannot be
        started.
        """
        with self._lock:
            if self._closed:
                raise TaskFailed("the worker ends", ErrorClass.RETRIABLE)
            if self._line is None or not self._line.alive:
                try:
                    self._line = Line(self._imports)
                except OSError as error:
                    raise TaskFailed(
                        f"no process for the plugin {self._imports.folder}: {error}", ErrorClass.RETRIABLE
                    ) from error
            return self._line

    def ended(self) -> str:
        """How the process ended by itself; "" = it has not ended."""
        with self._lock:
            return self._line.ended if self._line is not None else ""

    def rest(self) -> None:
        """End the process until the next call."""
        with self._lock:
            line, self._line = self._line, None
        if line is not None:
            line.close()

    def rest_if_idle(self) -> bool:
        """End the process if it is idle now and was idle at the last call of this method: between two messages of one
        request it looks idle, too. Return True when there is no process any more.
        """
        with self._lock:
            line = self._line
        if line is None or not line.alive:
            return True
        was_idle, self._was_idle = self._was_idle, line.is_idle
        if not (was_idle and self._was_idle):
            return False
        self.rest()
        return True

    def close(self) -> None:
        """End the process for good."""
        with self._lock:
            self._closed = True
        self.rest()


def _wait_of(told: WaitChanged) -> Wait | None:
    if not told.waits_for:
        return None
    return Wait(told.waits_for, told.message, told.since_ms, told.tries, told.next_ms)


def _pass_on(output: IO[bytes], folder: str) -> None:
    """Copy the plugin's output to this process' standard error, with the secrets that this process knows redacted, and
    limited by `OutputLimit`.
    """
    limit = OutputLimit(f"the plugin {folder}")
    with output:
        while said := output.readline(_OUTPUT_LINE_MAX_BYTES):
            if passed := limit.passed(said.decode(errors="replace")):
                sys.stderr.write(redacted(passed))
    sys.stderr.write(limit.rest())
