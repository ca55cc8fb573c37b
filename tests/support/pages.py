"""Series of one connector on the workers' Prometheus pages. Owns the reading of a page; no test, no service."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from herdmesh.devstack.layout import role_of
from tests.support.mesh import WAIT_S, Mesh


def series(mesh: Mesh, connector: str) -> dict[str, list[float]]:
    """The values of each series of the connector on all workers, by name and status."""
    found: dict[str, list[float]] = {}
    for one in mesh.stack.state.services:
        if role_of(one.name) != "worker":
            continue
        host, _, port = one.address.rpartition(":")
        with urllib.request.urlopen(f"http://{host}:{int(port) + 1000}/metrics", timeout=30) as page:
            families = list(text_string_to_metric_families(page.read().decode()))
        for sample in (sample for family in families for sample in family.samples):
            if sample.labels.get("connector") == connector:
                name = " ".join(filter(None, (sample.name, sample.labels.get("status", ""))))
                found.setdefault(name, []).append(sample.value)
    return found


async def until_pages(
    mesh: Mesh, connector: str, holds: Callable[[dict[str, list[float]]], bool], what: str
) -> dict[str, list[float]]:
    """Read the pages until the condition holds."""
    deadline_s = asyncio.get_running_loop().time() + WAIT_S
    while not holds(found := await asyncio.to_thread(series, mesh, connector)):
        assert asyncio.get_running_loop().time() < deadline_s, f"not {what}: {found}"
        await asyncio.sleep(0.2)
    return found
