"""A service's process: logging, signals, exit codes.

Owns everything between the operating system and a service's `async def serve(stop)`; the only place in Herdmesh with a
broad except, because no code above it could still log.

Invariant: SIGTERM or SIGINT once sets `stop` and leaves the service to end itself in order; a second one cancels it.

Exit codes: 0 stopped on request; 1 failed (the log has the reason); 2 wrong settings; 130 stopped by force.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, TextIO, TypeVar

import structlog
from pydantic import ValidationError

from herdmesh.connect.config import hide_in_output, redacted_value
from herdmesh.rpc import gc_at_import
from herdmesh.rpc.errors import InvalidConfig
from herdmesh.rpc.monitoring import tracing
from herdmesh.rpc.monitoring.resource import identity, name_process
from herdmesh.rpc.server import CannotListen
from herdmesh.rpc.settings import LogFormat, ServiceSettings

S = TypeVar("S", bound=ServiceSettings)
Main = Callable[[asyncio.Event], Awaitable[None]]

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_SETTINGS: Final = 2
EXIT_FORCED: Final = 130

#: Fields that identify a line. They are not redacted: names are no secrets, and many of them contain a password that is
#: a common word.
_OF_THE_LINE: Final = frozenset(("logger", "level", "timestamp"))
_IDENTITY: Final = _OF_THE_LINE | {
    *("service", "instance", "trace_id", "unit", "connector", "task", "run_id", "topic", "worker", "herder"),
    "correlation_id",
}
LOG_FORMAT_ENV: Final = "HERDMESH_LOG_FORMAT"
#: Connect's context of a unit: `[orders|worker]`, `[orders|task-0]`, `[orders|task-0|offsets]`.
_UNIT: Final = re.compile(r"\[(?P<connector>.*)\|(?:worker|task-(?P<task>\d+))(?:\|[a-z]+)?\]", re.DOTALL)
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def run(service: str, load: Callable[[], S], main: Callable[[S, asyncio.Event], Awaitable[None]]) -> NoReturn:
    """Run `main(settings, stop)` to its end and exit the process. `service` names the process in telemetry and log
    lines, such as `herdmesh.worker`; `load` reads the settings, and its errors exit with 2.
    """
    name_process(service)
    output = sys.stdout  # without the redaction that `hide_in_output` adds: log lines are redacted field by field
    configure_logging("info", to=output)
    log_identity()
    hide_in_output()
    gc_at_import.over()

    async def with_settings(stop: asyncio.Event) -> None:
        settings = load()
        configure_logging(settings.log_level, LogFormat(settings.log_format), output)
        _log.info("settings", **settings.redacted())
        await main(settings, stop)

    raise SystemExit(_run(with_settings))


_everywhere: dict[str, str] = {}


def log_with(**fields: str) -> None:
    """Add these fields to every further log line of this process, from any thread, unless the line or its context has
    the field itself. For a process that does one thing only.
    """
    _everywhere.update(fields)


def log_without(*fields: str) -> None:
    """Leave these fields out of every further log line of this process again."""
    for field in fields:
        _everywhere.pop(field, None)


def log_identity() -> None:
    """Add the service name and the instance id of this process, as in its metrics and spans, to every further line."""
    service, instance = identity()
    log_with(service=service, instance=instance)


def configure_logging(level: str = "info", form: LogFormat | None = None, to: TextIO | None = None) -> None:
    """Write log lines, from structlog and from stdlib logging (gRPC, Kafka clients) alike, to `to`, stderr by default.
    The format is that of HERDMESH_LOG_FORMAT by default, for the processes that a service starts.
    """
    if form is None:
        wanted = os.environ.get(LOG_FORMAT_ENV, "").lower()
        form = LogFormat.TEXT if wanted == LogFormat.TEXT.value else LogFormat.JSON
    stream = sys.stderr if to is None else to
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _with_everywhere,
        _with_unit_parts,
        _with_trace_id,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_secrets,
                _renderer(form, stream),
            ],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _with_everywhere(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {**_everywhere, **line}


def _with_unit_parts(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add connector and task of a line that has Connect's context (`[orders|task-0]`), so that logs can be filtered."""
    unit = line.get("unit")
    found = _UNIT.fullmatch(unit) if isinstance(unit, str) else None
    if found is None:
        return line
    parts: dict[str, Any] = {"connector": found["connector"]}
    if found["task"]:
        parts["task"] = int(found["task"])
    return {**parts, **line}


def _with_trace_id(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    trace_id = "" if "trace_id" in line else tracing.current_trace_id()
    return {**line, "trace_id": trace_id} if trace_id else line


def _renderer(form: LogFormat, to: TextIO) -> Any:
    if form is LogFormat.JSON:
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    colours = to.isatty() and not os.environ.get("NO_COLOR")
    return structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0)


def _without_secrets(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {name: value if name in _IDENTITY else redacted_value(value) for name, value in line.items()}


def _run(main: Main) -> int:
    try:
        return asyncio.run(_supervised(main))
    except asyncio.CancelledError:
        _log.warning("stopped_by_force")
        return EXIT_FORCED
    except (ValidationError, InvalidConfig) as error:
        _log.error("wrong_settings", error=str(error))
        return EXIT_SETTINGS
    except CannotListen as error:
        _log.error("cannot_listen", error=str(error))
        return EXIT_FAILED
    except Exception:  # noqa: BLE001 - the supervisor of the process: nothing is left but to log the reason and exit
        _log.exception("failed")
        return EXIT_FAILED


async def _supervised(main: Main) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    service = asyncio.ensure_future(main(stop))

    def signalled(number: int) -> None:
        name = signal.Signals(number).name
        if stop.is_set():
            _log.warning("signal_again", signal=name)
            service.cancel()
        else:
            _log.info("signal", signal=name)
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number)
    await service
    return EXIT_OK
