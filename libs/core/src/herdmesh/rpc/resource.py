"""The identity of this process for telemetry: OpenTelemetry's resource of its metrics and its spans.

Owns the attributes: `service.name`, `service.version`, `service.instance.id`, `host.name`, `process.pid`. The
environment overrides them, as the SDK defines (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`).

Invariant: metrics and spans of one process have one name and one instance id; no two processes have the same id.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import uuid
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_PREFIX = "herdmesh."


def resource(name: str = "") -> Resource:
    """The resource of this process. `name`: for a process whose start module does not name it, such as a run's."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    own = {
        "service.name": name or _started_as(),
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


def _started_as() -> str:
    """The name of the started program: `herdmesh.worker` for `python -m herdmesh.worker`; `herdmesh` for a command."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = "" if spec is None else spec.name.removesuffix(".__main__")
    return module if module.startswith(_PREFIX) else "herdmesh"


def _version() -> str:
    try:
        return metadata.version("herdmesh-core")
    except metadata.PackageNotFoundError:
        return "unknown"
