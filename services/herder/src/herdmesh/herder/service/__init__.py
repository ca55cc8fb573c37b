"""Services of the herder: wire in, wire out. `connectors` serves users, `sessions` serves workers."""

from herdmesh.herder.service.connectors import CONNECTOR_SERVICE, ConnectorServicer
from herdmesh.herder.service.sessions import SESSION_SERVICE, WorkerSessionServicer

__all__ = ["CONNECTOR_SERVICE", "SESSION_SERVICE", "ConnectorServicer", "WorkerSessionServicer"]
