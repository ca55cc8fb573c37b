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
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn

import structlog
from pydantic import ValidationError

from herdmesh.connect.config import hide_in_output, redacted_value
from herdmesh.rpc import gc_at_import
from herdmesh.rpc.errors import InvalidConfig

Main = Callable[[asyncio.Event], Awaitable[None]]

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_SETTINGS: Final = 2
EXIT_FORCED: Final = 130

#: Fields that identify a line. They are not redacted: names are no secrets, and many of them contain a password that is
#: a common word.
_OF_THE_LINE: Final = frozenset(("logger", "level", "timestamp"))
_IDENTITY: Final = _OF_THE_LINE | {"unit", "connector", "task", "run_id", "topic", "worker", "herder", "correlation_id"}
_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def run(main: Main, log_level: str | None = None) -> NoReturn:
    """Run `main(stop)` to its end and exit the process. `main` reads its settings first, so that errors exit with 2.

    `log_level` defaults to HERDMESH_LOG_LEVEL, then info.
    """
    configure_logging(log_level or os.environ.get("HERDMESH_LOG_LEVEL", "info"))
    hide_in_output()
    gc_at_import.over()
    raise SystemExit(_run(main))


_everywhere: dict[str, str] = {}


def log_with(**fields: str) -> None:
    """Add these fields to every further log line of this process, from any thread, unless the line or its context has
    the field itself. For a process that does one thing only.
    """
    _everywhere.update(fields)


def configure_logging(level: str = "info") -> None:
    """Write JSON lines to stderr, from structlog and from stdlib logging (gRPC, Kafka clients) alike."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _with_everywhere,
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_secrets,
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _with_everywhere(_: Any, __: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {**_everywhere, **line}


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
