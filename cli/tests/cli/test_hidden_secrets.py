"""Tests of secrets in outputs: hidden by the type of their key, by name and by value; the rest stays readable."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli.display.hidden_secrets import hide, hide_in_connectors, refuse_hidden
from herdmesh.cli.errors import CommandError, from_reason

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("connection.password", "planted", "****"),
        ("producer.override.sasl.jaas.config", JAAS, "****"),
        ("aws.secret.access.key", "planted", "****"),
        ("connection.url", "jdbc:postgresql://ann:planted@db/x", "jdbc:postgresql://ann:****@db/x"),
        (
            "connection.url",
            "jdbc:postgresql://db/x?user=ann&password=planted",
            "jdbc:postgresql://db/x?user=ann&password=****",
        ),
        ("url", "https://ann:planted@host/?token=planted", "****"),
        ("connection.url", "jdbc:postgresql://db/x", "jdbc:postgresql://db/x"),
        ("connection.password", "${env:DB_PASSWORD}", "${env:DB_PASSWORD}"),
        ("connection.password", None, None),
        ("connection.password", "", ""),
        ("key.converter", "org.example.X", "org.example.X"),
        ("transforms.mask.replacement", "****", "****"),
        ("topics", "a,b", "a,b"),
    ],
)
def test_secrets_are_hidden_and_other_values_stay(key: str, value: str | None, shown: str | None) -> None:
    assert hide({key: value}) == {key: shown}
    if shown != value:
        with pytest.raises(CommandError) as refused:
            refuse_hidden({key: shown, "name": "a"})
        assert [field for field, _ in refused.value.fields] == [key]
    else:
        refuse_hidden({key: shown})


class Herder:
    """A herder whose one plugin has a PASSWORD key that does not look like one."""

    async def call(self, _method: Any, request: admin.GetPluginRequest, _timeout_s: float) -> admin.GetPluginResponse:
        if request.class_name != "Plain":
            raise from_reason("PLUGIN_NOT_FOUND", "there is none")
        reply = admin.GetPluginResponse()
        reply.fields.add(name="phrase.of.entry", type="PASSWORD")
        reply.fields.add(name="greeting", type="STRING")
        return reply


async def test_a_key_that_its_plugin_calls_a_password_is_hidden_in_the_connector_and_its_tasks() -> None:
    config = {"phrase.of.entry": "planted", "greeting": "hello"}
    connectors: list[dict[str, Any]] = [
        {"config": {"connector.class": name, **config}, "tasks": [{"config": dict(config)}]}
        for name in ("Plain", "Gone")
    ]
    herder: Any = Herder()
    await hide_in_connectors(herder, connectors)
    plain, gone = connectors
    assert [one["config"] for one in (plain, *plain["tasks"])] == [
        {"connector.class": "Plain", "phrase.of.entry": "****", "greeting": "hello"},
        {"phrase.of.entry": "****", "greeting": "hello"},
    ]
    assert gone["config"]["phrase.of.entry"] == "planted", "no worker knows this class: names and values decide"
