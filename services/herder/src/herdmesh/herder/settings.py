"""Settings of the herder, from flags and HERDMESH_* (see `herdmesh.rpc.settings`).

Owns names, defaults and units, and the state's rules built from them. Invariant: frozen; read once in `__main__`.
"""

from __future__ import annotations

import zlib
from typing import Self

from pydantic import Field, field_validator, model_validator

from herdmesh.herder.state import Rules
from herdmesh.herder.state.model import RestartPolicy
from herdmesh.rpc.settings import AdvertisedSettings

#: Key sizes that Java's key generators use when no size is set (JDK 17).
_KEY_BYTES = {
    "HmacMD5": 64,
    "HmacSHA1": 64,
    "HmacSHA224": 28,
    "HmacSHA256": 32,
    "HmacSHA384": 48,
    "HmacSHA512": 64,
    "HmacSHA512/224": 28,
    "HmacSHA512/256": 32,
    "HmacSHA3-224": 28,
    "HmacSHA3-256": 32,
    "HmacSHA3-384": 48,
    "HmacSHA3-512": 64,
}
_KEY_BITS_MIN = 40


class HerderSettings(AdvertisedSettings):
    """Settings of one herder replica."""

    listen: str = Field(default="127.0.0.1:7203", description="host:port to serve gRPC on; port 0 = any free port")
    config_store: str = Field(default="127.0.0.1:7201", description="config store replicas, host:port, comma separated")
    status_store: str = Field(default="127.0.0.1:7202", description="status store replicas, host:port, comma separated")
    session_timeout_ms: int = Field(
        default=6_000,
        ge=500,
        le=300_000,
        description="time without a message from a worker after which its units move to other workers, in ms",
    )
    stream_grace_ms: int = Field(
        default=2_000, ge=0, le=300_000, description="time for a worker whose stream broke to connect again, in ms"
    )
    scheduled_rebalance_max_delay_ms: int = Field(
        default=0,
        ge=0,
        description="time that units of a lost worker wait for its return before they move to other workers, in ms",
    )
    initial_rebalance_delay_ms: int = Field(
        default=1_000,
        ge=0,
        le=60_000,
        description="time for more workers to join before units start on the first, in ms; up to three times this",
    )
    balance_enabled: bool = Field(
        default=True, description="whether running units move from workers with more units to workers with fewer"
    )
    balance_delay_ms: int = Field(
        default=60_000,
        ge=0,
        description="time without a change of workers, or units placed for one, before units move for balance, in ms",
    )
    balance_moves_max: int = Field(
        default=10, ge=1, le=1_000, description="units that move for balance at a time; the next follow once these run"
    )
    balance_threshold_percent: int = Field(
        default=5,
        ge=0,
        le=100,
        description="percentage of its units that a worker must have beyond its share before a balance begins",
    )
    stop_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        description="time to acknowledge a stop before the unit counts as lost, in ms",
    )
    topic_tracking_enable: bool = Field(
        default=True, description="whether the topics that a connector uses can be listed (KIP-558)"
    )
    topic_tracking_allow_reset: bool = Field(default=True, description="whether users may reset those lists")
    request_timeout_ms: int = Field(
        default=60_000, ge=100, description="deadline of a request whose caller sets none, in ms"
    )

    restart_enabled: bool = Field(default=True, description="whether tasks and connectors that failed are restarted")
    restart_attempts_max: int = Field(
        default=10,
        ge=1,
        le=1_000,
        description="maximum number of restarts of a unit within the window, after which it stays FAILED",
    )
    restart_window_ms: int = Field(
        default=3_600_000, ge=1_000, description="window in which restarts are counted, in ms"
    )
    restart_backoff_ms: int = Field(
        default=1_000, ge=1, description="time before the first restart, in ms; doubles with each in a row"
    )
    restart_backoff_max_ms: int = Field(
        default=300_000,
        ge=1,
        description="maximum time before a restart, and time RUNNING after which the backoff is reset, in ms",
    )
    restart_jitter: float = Field(
        default=0.2,
        ge=0.0,
        le=0.5,
        description="jitter: share of a backoff that is subtracted at random, so that restarts do not coincide",
    )

    inter_worker_key_generation_algorithm: str = Field(
        default="HmacSHA256",
        description="algorithm of the key that signs Connect's internal requests, by its name in Java",
    )
    inter_worker_key_size: int = Field(
        default=0, ge=0, le=8192, description="bits of that key, at least 40; 0 = the algorithm's own"
    )
    inter_worker_key_ttl_ms: int = Field(
        default=3_600_000, ge=0, le=2**31 - 1, description="time after which the leader makes a new key; 0 = never"
    )

    @field_validator("inter_worker_key_generation_algorithm")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in _KEY_BYTES:
            raise ValueError(f"must be one of {', '.join(_KEY_BYTES)}")
        return value

    @field_validator("inter_worker_key_size")
    @classmethod
    def _long_enough(cls, value: int) -> int:
        if 0 < value < _KEY_BITS_MIN:
            raise ValueError(f"must be at least {_KEY_BITS_MIN}, or 0 for the algorithm's own size")
        return value

    @model_validator(mode="after")
    def _backoff_fits(self) -> Self:
        if self.restart_backoff_max_ms < self.restart_backoff_ms:
            raise ValueError(
                f"restart_backoff_max_ms ({self.restart_backoff_max_ms}) must not be below restart_backoff_ms "
                f"({self.restart_backoff_ms})"
            )
        return self

    def rules(self, herder_id: str) -> Rules:
        """The settings that the state needs."""
        return Rules(
            herder_id=herder_id,
            session_timeout_ms=self.session_timeout_ms,
            stream_grace_ms=self.stream_grace_ms,
            rebalance_delay_ms=self.scheduled_rebalance_max_delay_ms,
            initial_delay_ms=self.initial_rebalance_delay_ms,
            balance_enabled=self.balance_enabled,
            balance_delay_ms=self.balance_delay_ms,
            balance_moves_max=self.balance_moves_max,
            balance_threshold_percent=self.balance_threshold_percent,
            stop_timeout_ms=self.stop_timeout_ms,
            session_key_algorithm=self.inter_worker_key_generation_algorithm,
            session_key_bytes=(self.inter_worker_key_size + 7) // 8
            or _KEY_BYTES[self.inter_worker_key_generation_algorithm],
            session_key_ttl_ms=self.inter_worker_key_ttl_ms,
            restart=RestartPolicy(
                self.restart_enabled,
                self.restart_attempts_max,
                self.restart_window_ms,
                self.restart_backoff_ms,
                self.restart_backoff_max_ms,
                self.restart_jitter,
            ),
            seed=zlib.crc32(herder_id.encode()),
        )
