"""Settings of the herder, from flags and HERDMESH_* (see `herdmesh.rpc.settings`).

Owns names, defaults and units, and the state's rules made of them. Invariant: frozen; read once in `__main__`.
"""

from __future__ import annotations

from pydantic import Field

from herdmesh.herder.state import Rules
from herdmesh.rpc.settings import ServiceSettings


class HerderSettings(ServiceSettings):
    """One herder replica."""

    listen: str = Field(default="127.0.0.1:7203", description="host:port to serve gRPC on; port 0 = any free port")
    advertised_address: str = Field(
        default="", description="host:port under which clients and workers reach this herder; default: where it listens"
    )
    config_store: str = Field(default="127.0.0.1:7201", description="config store replicas, host:port, comma separated")
    status_store: str = Field(default="127.0.0.1:7202", description="status store replicas, host:port, comma separated")
    session_timeout_ms: int = Field(
        default=6_000, ge=500, le=300_000, description="silence of a worker after which its units go elsewhere, in ms"
    )
    stream_grace_ms: int = Field(
        default=2_000, ge=0, le=300_000, description="time a worker whose stream broke has to dial in again, in ms"
    )
    scheduled_rebalance_max_delay_ms: int = Field(
        default=0, ge=0, description="time units of a lost worker wait for it to return before they go elsewhere, in ms"
    )
    stop_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        description="time to acknowledge a stop before the unit counts as lost, in ms",
    )
    request_timeout_ms: int = Field(
        default=60_000, ge=100, description="deadline of a request whose caller sets none, in ms"
    )

    def rules(self, herder_id: str) -> Rules:
        """What the state needs of these."""
        return Rules(
            herder_id=herder_id,
            session_timeout_ms=self.session_timeout_ms,
            stream_grace_ms=self.stream_grace_ms,
            rebalance_delay_ms=self.scheduled_rebalance_max_delay_ms,
            stop_timeout_ms=self.stop_timeout_ms,
        )
