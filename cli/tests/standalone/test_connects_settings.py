"""Test that a setting of ours with the name of a property of Connect's workers has its default and its kind (golden
configdef vectors). The other fields of the vectors (importance, group, width, order) have no counterpart here: ours are
settings of four services, not one definition.
"""

from __future__ import annotations

import pytest

from herdmesh.configstore.settings import ConfigStoreSettings
from herdmesh.herder.settings import HerderSettings
from herdmesh.statusstore.settings import StatusStoreSettings
from herdmesh.worker.settings import WorkerSettings
from tests.support import golden

_SERVICES = (ConfigStoreSettings, HerderSettings, StatusStoreSettings, WorkerSettings)
_WORKERS = ("DistributedConfig", "StandaloneConfig")
_KINDS = {"INT": int, "LONG": int, "SHORT": int, "BOOLEAN": bool, "STRING": str, "LIST": str, "CLASS": str}
#: Settings with a default of their own, and the reason.
_OTHERS = {
    "session_timeout_ms": "silence of a worker; a stream that breaks is noticed at once",
    "scheduled_rebalance_max_delay_ms": "nothing is held back for a worker that left, unless asked",
    "request_timeout_ms": "how long the herder works on a call, not a client of Kafka on a request",
    "inter_worker_key_size": "0 stands for Java's null: the algorithm's own size",
}


@pytest.mark.parametrize("owner", _WORKERS)
def test_a_setting_named_as_connects_has_its_default_and_kind(owner: str) -> None:
    recorded = {
        line["name"].replace(".", "_"): line
        for line in golden.lines_or_own("configdef.jsonl")
        if line["owner"] == owner
    }
    differing: set[str] = set()
    compared: set[str] = set()
    for service in _SERVICES:
        for name, field in service.model_fields.items():
            line = recorded.get(name)
            if line is None:
                continue
            compared.add(name)
            assert field.annotation is _KINDS[line["type"]], name
            if not line["required"] and _text(field.default) != (line["default"] or ""):
                differing.add(name)
    assert len(compared) > 6
    assert differing == set(_OTHERS) & compared


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
