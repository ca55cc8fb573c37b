"""The identity of this process for telemetry: OpenTelemetry's resource of its metrics and spans, and two fields of its
log lines.

Owns the attributes: `service.name`, `service.version`, `service.instance.id`, `host.name`, `process.pid`. The
environment overrides them, as the SDK defines (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`).

Invariant: metrics, spans and log lines of one process have one name and one instance id; no two processes have the same
id.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import uuid
from importlib import metadata
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_PREFIX = "herdmesh."
_named: list[str] = []


def name_process(name: str) -> None:
    """Set the service name of this process, for instance `herdmesh.worker`, before its telemetry starts. Without it,
    the module that the process was started with names it; a console script has none.
    """
    _named[:] = [name]


def identity() -> tuple[str, str]:
    """The service name and the instance id, also where OpenTelemetry's SDK is not loaded."""
    pairs = (pair.partition("=") for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    given = {name.strip(): unquote(value.strip()) for name, _, value in pairs if value}
    name = os.environ.get("OTEL_SERVICE_NAME") or given.get("service.name") or _name()
    return name, given.get("service.instance.id") or _instance_id(os.getpid())


def resource() -> Resource:
    """The resource of this process."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {
        "service.name": _name(),
        "service.version": _version(),
        "service.instance.id": _instance_id(os.getpid()),
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())


@functools.cache
def _instance_id(_pid: int) -> str:
    """One id for each process: a fork has another process number."""
    return str(uuid.uuid4())


def _name() -> str:
    """The name that the process was given, else that of the started program: `herdmesh.standalone` for
    `python -m herdmesh.standalone`; `herdmesh` for a command.
    """
    if _named:
        return _named[0]
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = "" if spec is None else spec.name.removesuffix(".__main__")
    return module if module.startswith(_PREFIX) else "herdmesh"


def _version() -> str:
    try:
        return metadata.version("herdmesh-core")
    except metadata.PackageNotFoundError:
        return "unknown"
