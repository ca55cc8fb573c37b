"""Connector configs on the pages: each is valid by the worker's own validation, and every key of it is read."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

import pytest

from herdmesh.api.worker.v1 import worker_service_pb2
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.plugins.plugin_registry import PluginRegistry
from herdmesh.worker.effects.plugins import validation
from herdmesh.worker.settings import WorkerSettings
from tests.docs.blocks import Block, blocks, pages

CONFIGS = [
    block
    for page in pages()
    for block in blocks(page)
    if block.language == "json" and "connector.class" in block.text and block.text.lstrip().startswith("{")
]
#: page -> the key for which its config gets a warning, as the page itself describes.
WARNED: Final = {"docs/connectors/jdbc-source.md": "mode", "docs/connectors/postgres-sink.md": "batch.size"}


@pytest.fixture(scope="module")
def registry() -> PluginRegistry:
    return PluginRegistry.discover()


def test_the_pages_have_configs() -> None:
    assert len(CONFIGS) > 10


@pytest.mark.parametrize("block", CONFIGS, ids=str)
def test_a_config_of_a_page_is_valid(block: Block, registry: PluginRegistry) -> None:
    given = cast("dict[str, Any]", json.loads(block.text))
    assert given.get("name"), "`herd apply -f` refuses a config without a name"
    config = {"name": given["name"], **given.get("config", given)}
    # references to secrets are resolved where the connector runs: here they are plain values
    plain = {key: re.sub(r"\$\{\w+:[^}]*\}", "x", str(value)) for key, value in config.items()}
    worker = WorkerSettings().worker_config()
    answer: worker_service_pb2.ConfigValidation = validation.validate(
        plain, registry, worker, ConfigProviders.of(worker)
    )
    wrong = [f"{field.name}: {error}" for field in answer.fields for error in field.errors]
    assert not wrong
    assert not [one.name for one in answer.warnings if one.name != WARNED.get(block.page)]
