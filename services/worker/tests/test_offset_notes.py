"""Notes of `herd offsets get` about offsets from which no run continues. `test_offsets.py` has those of a sink."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from herdmesh.engine.sink import partitions
from herdmesh.engine.source import source_cluster
from libs.core.tests.engine.harness import Kafka
from services.worker.tests.test_offsets import NOT_GONE_ON_FROM, bench


@pytest.mark.kafka
def test_a_mirrors_offsets_of_an_earlier_topic_have_a_note(
    kafka_bootstrap: str, tmp_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, here = Kafka(kafka_bootstrap), bench(kafka_bootstrap, tmp_topic("offsets"))
    topic, javas = kafka.create_topic(tmp_topic()), kafka.create_topic(tmp_topic("javas"))
    config: dict[str, str | None] = {
        "name": f"mirror-{topic}", "connector.class": "MirrorSource", "source.cluster.alias": "a",
        "source.cluster.bootstrap.servers": kafka_bootstrap, "topics": topic,
    }  # fmt: skip
    [topic_id] = partitions.topic_ids(kafka.admin, [topic]).values()
    place = {"cluster": "a", "partition": 0, "topic": topic}
    here.change(
        config,
        (place, {"offset": 4, "topic_id": topic_id}),
        ({**place, "topic": javas}, {"offset": 4}),
        ({**place, "cluster": "another"}, {"offset": 4, "topic_id": "of-another-cluster"}),
    )
    assert here.note(config) == ""
    here.change(config, (place, {"offset": 4, "topic_id": "earlier"}))
    assert here.note(config) == (
        "offsets are of an earlier topic of the same name in the source cluster a, which was deleted and created again "
        f"since: {topic}; {NOT_GONE_ON_FROM}"
    )
    monkeypatch.setattr(source_cluster, "CALL_TIMEOUT_S", 0.2)
    away = {**config, "source.cluster.bootstrap.servers": "127.0.0.1:1"}
    assert here.note(away).startswith(
        "it is unknown now whether runs continue from these offsets: the source cluster a"
    )
