"""Processes of plugins, as the worker sees them: one for each plugin folder that is asked something.

Owns the processes and their lines. What is asked and what an answer means is `effects.remote_connectors`'. Calls block,
so they are made in threads; any number at a time. Invariants: every call is answered or raises, at the latest when the
process dies; a process that died is started anew by the next call, and what was started in it is told.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import IO, Any, Final

import msgspec
import structlog

from herdmesh.connect.errors import ConfigError, RetriableError
from herdmesh.connect.plugin_imports import PluginImports
from herdmesh.connect.redaction import redacted, secrets_kept_for_this_answer
from herdmesh.engine.contract import ErrorClass
from herdmesh.engine.errors import TaskFailed
from herdmesh.worker.plugin_messages import Answer, Call, TasksOutdated, ToldFailure

_OUTPUT_LINE_MAX_BYTES: Final = 65_536
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class TraceOfPlugin(Exception):
    """The trace of what a plugin's code raised in its process: the cause of what is raised here, and shown as such."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(slots=True)
class _Waiting:
    done: threading.Event = field(default_factory=threading.Event)
    answer: Answer | None = None


class Line:
    """One process, from its start to its death."""

    def __init__(self, imports: PluginImports) -> None:
        """Start it. Raises OSError."""
        self._imports = imports
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._instances: dict[str, Callable[[], None]] = {}
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
        threading.Thread(target=_pass_on, args=(self._process.stdout,), name=f"{name} output", daemon=True).start()

    @property
    def alive(self) -> bool:
        """False once it is known to have died."""
        return not self._over

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def on_outdated(self, instance: str, tell: Callable[[], None] | None) -> None:
        """From now on `tell` is called when that instance wants its task configs asked again, and when the process dies
        with it; None = no more."""
        with self._lock:
            if tell is None:
                self._instances.pop(instance, None)
            elif not self._over:
                self._instances[instance] = tell
                return
        if tell is not None:
            tell()

    def call(self, what: str, entry: str, *arguments: Any, instance: str = "", timeout_s: float | None = None) -> Any:
        """Have it done, and return what came of it.

        Raises:
            ConfigError, RetriableError, ImportError: as the author's code did.
            TaskFailed: for anything else that it raised, in its class; RETRIABLE when the process died or (`timeout_s`)
                did not answer in time.
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
        with self._sending, contextlib.suppress(OSError):  # it is dying: the reader says so
            self._connection.send_bytes(msgspec.json.encode(call))
        if not waiting.done.wait(timeout_s):
            raise TaskFailed(
                f"the plugin {self._imports.folder} did not answer within {timeout_s:g} s", ErrorClass.RETRIABLE
            )
        if waiting.answer is None:
            raise self._died()
        if waiting.answer.failure is not None:
            raise _raised(waiting.answer.failure)
        return waiting.answer.value

    def close(self) -> None:
        """Kill it. Whoever started something in it has stopped it before."""
        self._closed = True
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                message = msgspec.json.decode(self._connection.recv_bytes(), type=Answer | TasksOutdated)
                if isinstance(message, TasksOutdated):
                    with self._lock:
                        tell = self._instances.get(message.instance)
                    if tell is not None:
                        tell()
                    continue
                with self._lock:
                    waiting = self._waiting.pop(message.number, None)
                if waiting is not None:
                    waiting.answer = message
                    waiting.done.set()
        self._process.kill()  # one that only closed its end of the line is of no use any more
        code = self._process.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        with self._lock:
            self._over = how
            waiting_now, self._waiting = list(self._waiting.values()), {}
            instances, self._instances = list(self._instances.values()), {}
        with self._sending:  # whoever still sends hears that nobody reads
            self._connection.close()
        if not self._closed:
            _log.error("plugin_process_died", folder=self._imports.folder, how=how, connectors=len(instances))
        for waiting in waiting_now:
            waiting.done.set()
        for tell in instances:
            tell()

    def _died(self) -> TaskFailed:
        return TaskFailed(
            f"the process of the plugin {self._imports.folder} died ({self._over}) with all connectors that ran in it; "
            "restart the connector, which starts it anew",
            ErrorClass.RETRIABLE,
        )


class PluginProcess:
    """The process of one plugin folder, whenever there is one."""

    def __init__(self, imports: PluginImports) -> None:
        self._imports = imports
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._closed = False

    def line(self) -> Line:
        """Of the process, which is started if there is none. Raises TaskFailed when it cannot be."""
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

    def rest(self) -> None:
        """End the process until the next call."""
        with self._lock:
            line, self._line = self._line, None
        if line is not None:
            line.close()

    def close(self) -> None:
        """End the process for good."""
        with self._lock:
            self._closed = True
        self.rest()


def _pass_on(output: IO[bytes]) -> None:
    """What the plugin prints or logs, into this process' standard error, without the secrets this process knows."""
    with output:
        while said := output.readline(_OUTPUT_LINE_MAX_BYTES):
            sys.stderr.write(redacted(said.decode(errors="replace")))


def _raised(failure: ToldFailure) -> Exception:
    error: Exception
    match failure.kind:
        case "config":
            error = ConfigError(failure.message, field=failure.field, fix=failure.fix)
        case "retriable":
            error = RetriableError(failure.message)
        case "import":
            error = ImportError(failure.message)
        case _:
            error = TaskFailed(failure.message, ErrorClass(failure.error_class))
    if failure.trace:
        error.__cause__ = TraceOfPlugin(failure.trace)
    return error
