"""The pages and pictures that are generated from code are current; `python -m website --pages` regenerates them."""

from __future__ import annotations

import re
from importlib.metadata import entry_points

import pytest

import herdmesh.sdk
from herdmesh.cli.errors import EXIT_CODES, EXIT_INTERNAL, EXIT_USAGE
from tests.docs.blocks import ROOT
from website.command_pages import EXIT_MEANINGS
from website.generated import generated


@pytest.fixture(scope="module")
def fresh() -> dict[str, str]:
    return generated()


def test_generated_pages_are_current(fresh: dict[str, str]) -> None:
    stale = [path for path, text in fresh.items() if not (ROOT / path).is_file() or (ROOT / path).read_text() != text]
    assert not stale, "run `python -m website --pages`"


def test_every_exit_code_has_a_meaning() -> None:
    assert set(EXIT_MEANINGS) == {0, EXIT_INTERNAL, EXIT_USAGE, *EXIT_CODES.values()}


def test_the_sdk_page_has_every_export_once() -> None:
    page = (ROOT / "docs/reference/sdk-api.md").read_text()
    assert sorted(re.findall(r"^::: herdmesh\.sdk\.(\w+)$", page, re.MULTILINE)) == sorted(herdmesh.sdk.__all__)


def test_the_overview_names_every_shipped_connector(fresh: dict[str, str]) -> None:
    page = (ROOT / "docs/connectors/index.md").read_text()
    shipped = re.findall(r"^## (\w+)$", fresh["docs/reference/connector-keys.md"], re.MULTILINE)
    assert len(shipped) > 10
    aliases = {one.name: one.load().aliases for one in entry_points(group="herdmesh.connectors") if one.name in shipped}
    assert not [name for name, known in aliases.items() if not any(f"`{one}" in page for one in (name, *known))]


def test_connector_keys_and_service_calls_are_on_their_pages(fresh: dict[str, str]) -> None:
    """The generators read the code: a page without rows would be current as well."""
    assert fresh["docs/reference/connector-keys.md"].count("\n| `") > 200
    assert fresh["docs/reference/service-settings.md"].count("| `HERDMESH_") > 60
    assert "`CreateConnector`" in fresh["docs/reference/grpc/herder.md"]
    assert "`CONNECTOR_EXISTS`" in fresh["docs/reference/errors.md"]
    assert "`herd dlq replay`" in fresh["docs/reference/cli.md"]
    assert "worker-1" in fresh["docs/assets/live-table.svg"]
