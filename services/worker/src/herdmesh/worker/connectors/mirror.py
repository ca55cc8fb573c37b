"""`MirrorSourceConnector`: copies topics of another Kafka cluster into the workers', byte by byte.

Owns the connector: which partitions there are, who copies which, and noticing new ones. Keys: `mirror_config`; names:
`mirror_names`; the task: `mirror_task`, so that a worker that only validates makes no client.

Invariant: the partitions it deals out are those it last saw, so two task sets in a row differ only by what the source
has gained or lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from herdmesh.connect.config import ConfigDef, FieldViolation
from herdmesh.connect.connector import Config, OffsetMap, PartitionId, SourceConnector
from herdmesh.connect.errors import ConfigError, ConnectError
from herdmesh.worker.connectors import mirror_names
from herdmesh.worker.connectors.mirror_config import (
    ASSIGNED,
    CONVERTERS,
    KEYS,
    MirrorSettings,
    settings_of,
    warnings_of,
)

_SIGN_KEPT_S = 0.5
"""How long a look at the ends of a task's partitions serves; the worker asks four times a second."""
_SIGNS_MAX = 1_000
_log = logging.getLogger(__name__)


class MirrorSourceConnector(SourceConnector):
    """MirrorMaker 2's source connector, as far as docs/connectors/mirror.md says."""

    class_name = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    aliases = ("MirrorSource", "MirrorSourceConnector")
    version = "4.3.1"
    java_task_class = "org.apache.kafka.connect.mirror.MirrorSourceTask"
    default_converters = CONVERTERS

    @classmethod
    def config_def(cls) -> ConfigDef:
        return KEYS

    def validate(self, config: Config) -> Sequence[ConfigError]:
        try:
            settings_of(config)
        except ConfigError as error:
            return [error]
        return ()

    def warnings(self, config: Config) -> Sequence[FieldViolation]:
        return warnings_of(config)

    def start(self, config: Config) -> None:
        super().start(config)
        self._settings = settings_of(config)
        self._partitions = _found(self._settings) if self._settings.enabled else []
        self._over = threading.Event()
        wakes = self.context is not None and self._settings.enabled and self._settings.refresh_s is not None
        self._watching = threading.Thread(target=self._watch, name="mirror refresh", daemon=True) if wakes else None
        if self._watching is not None:
            self._watching.start()

    def stop(self) -> None:
        self._over.set()

    def task_class(self) -> str:
        return "herdmesh.worker.connectors.mirror_task:MirrorSourceTask"

    def task_configs(self, max_tasks: int) -> list[dict[str, str | None]]:
        dealt = mirror_names.split(self._partitions, max_tasks)
        return [
            {**self.config, ASSIGNED: mirror_names.written(partitions), "task.index": str(task)}
            for task, partitions in enumerate(dealt)
        ]

    def exactly_once_support(self, config: Config) -> bool | None:
        """Not with records of transactions that may yet be aborted, as in Java."""
        try:
            return settings_of(config).source.read_committed
        except ConfigError:
            return None

    def alter_offsets(
        self, config: Config, offsets: Sequence[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]
    ) -> bool:
        for partition, offset in offsets:
            _check_partition(partition)
            if offset is not None:
                _check_offset(offset)
        return True

    def offsets_at(
        self, config: Config, time_ms: int, committed: Sequence[tuple[OffsetMap | None, OffsetMap]]
    ) -> Sequence[tuple[OffsetMap | None, OffsetMap | None]] | None:
        """By the records' own times at the source. Of another source's partitions nothing is known: they stay."""
        settings = settings_of(config)
        known = {
            (partition["topic"], partition["partition"]): (partition, int(offset["offset"]))
            for partition, offset in committed
            if partition is not None and partition.get("cluster") == settings.naming.source
        }
        found = settings.source.offsets_at(known, time_ms)
        return [(known[one][0], {"offset": first - 1}) for one, first in found.items() if first - 1 < known[one][1]]

    def sign(self, task_config: Config) -> str | None:
        """Where the task's partitions end at the source. Raises RetriableError while it is away."""
        return _signs.of(task_config)

    def _watch(self) -> None:
        """Look for new topics and partitions until the connector is stopped."""
        while not self._over.wait(self._settings.refresh_s):
            try:
                found = _found(self._settings)
            except Exception as error:  # noqa: BLE001 - it would end this thread, and nobody would look any more
                _log.warning(
                    "new topics are looked for again later: %s", error, exc_info=not isinstance(error, ConnectError)
                )
                continue
            if found != self._partitions:
                _log.info("the source has %d partitions to copy now, %d before", len(found), len(self._partitions))
                self._partitions = found
                assert self.context is not None
                self.context.request_task_reconfiguration()


def _found(settings: MirrorSettings) -> list[PartitionId]:
    return settings.selection.partitions(settings.source.partition_counts())


class _Signs:
    """The last look at the ends of each task's partitions, in this process; a connector is made anew for each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[tuple[str, str | None], ...], tuple[float, str]] = OrderedDict()

    def of(self, task_config: Config) -> str:
        key = tuple(sorted(task_config.items()))
        with self._lock:
            looked_s, sign = self._kept.get(key, (0.0, ""))
        if sign and time.monotonic() - looked_s < _SIGN_KEPT_S:
            return sign
        looked_s = time.monotonic()
        ends = settings_of(task_config).source.ends(mirror_names.read(task_config.get(ASSIGNED) or ""))
        sign = " ".join(f"{topic}-{number}:{end}" for (topic, number), end in sorted(ends.items()))
        with self._lock:
            self._kept[key] = looked_s, sign
            self._kept.move_to_end(key)
            if len(self._kept) > _SIGNS_MAX:
                self._kept.popitem(last=False)
        return sign


_signs = _Signs()


def _check_partition(partition: Mapping[str, Any] | None) -> None:
    if partition is None:
        raise ConfigError("Source partition may not be null")
    for key in ("cluster", "topic"):
        if not isinstance(partition.get(key), str):
            raise ConfigError(f"The source partition {dict(partition)} needs a text under the key '{key}'")
    number = partition.get("partition")
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(
            f"The source partition {dict(partition)} needs a number, 0 or more, under the key 'partition'"
        )


def _check_offset(offset: Mapping[str, Any]) -> None:
    number = offset.get("offset")
    if isinstance(number, bool) or not isinstance(number, int) or number < -1:
        raise ConfigError(
            f"The source offset {dict(offset)} needs a number, 0 or more, under the key 'offset': that of the "
            "last record copied, or -1 before the first"
        )
