"""Two config stores in a run: herders lead and write under their epochs beside the clients.

Owns the parts of a run that only the config store has; the rest is `tests.support.store_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from herdmesh.api.configstore.v1 import config_read_service_pb2 as read_pb
from herdmesh.devstack.broker import Broker
from tests.support.config_register import ConfigRegister
from tests.support.configstore_process import ConfigStoreProcess
from tests.support.store_checks import Granted
from tests.support.store_clients import Herder
from tests.support.store_runs import Run, Stubs


@dataclass
class _Server:
    write: Stubs
    read: Stubs
    leadership: Stubs


class ConfigRun(Run):
    """One run."""

    def __init__(self, broker: Broker, topic: str, folder: Path, seed: int) -> None:
        super().__init__(broker, topic, folder, seed)
        self.side = ConfigRegister(topic, "")
        self.topics = (topic, f"{topic}-audit")
        self._herders = [Herder(self, f"herder-{number}") for number in range(2)]

    def _process(
        self, bootstrap: str, log_path: Path, more: Sequence[str], environment: Mapping[str, str]
    ) -> ConfigStoreProcess:
        return ConfigStoreProcess(bootstrap, self.topic, log_path, more=more, environment=environment)

    def _server(self, store: ConfigStoreProcess) -> _Server:
        return _Server(Stubs(store.write), Stubs(store.read), Stubs(store.lead))

    async def _store_id(self, store: ConfigStoreProcess) -> str:
        return (await store.read.GetSnapshot(read_pb.GetSnapshotRequest())).meta.revision.store_id

    def _besides(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        return [work for herder in self._herders for work in (herder.run, herder.lead)]

    def _granted(self) -> Sequence[Granted]:
        return [grant for herder in self._herders for grant in herder.granted]
