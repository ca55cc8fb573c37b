"""HTTP pages of every service of a running mesh: metrics that Prometheus' checker accepts, health that is true, and
who is who in the resource.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from herdmesh.devstack.layout import role_of
from services.worker.tests.metrics.metrics_page import DASHBOARD, alert_rules, labels_by_name
from services.worker.tests.metrics.used_series import used_series
from tests.support import promtool
from tests.support.mesh import Mesh, parquet_sink
from tests.support.pages import until_pages
from tests.support.promlint import metrics_of, problems

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]

#: Lines of one histogram of one set of labels; before, some had 20.
BUCKETS_MAX = 12
_LE = re.compile(r'le="[^"]*",?')
NAMES = {"config-store": "configstore", "status-store": "statusstore", "herder": "herder", "worker": "worker"}


#: Series of sources, and of events that this test does not have.
_ONLY_SOMETIMES = re.compile(r"_source_|_waiting_seconds$|_units_not_running$|_total$|_(avg|max)_time_seconds$")
#: Labels that a service's resource may add.
_RESOURCE = ("otel_scope_name", "otel_scope_version", "otel_scope_schema_url")


_LATENCY = "herdmesh_task_end_to_end_latency_seconds_count"


def labels_on(pages: Iterable[str]) -> dict[str, set[str]]:
    """The labels of each metric of these pages."""
    found: dict[str, set[str]] = {}
    for one in (one for page in pages for one in metrics_of(page)):
        found.setdefault(one.name, set()).update(one.labels)
    return found


def expressions() -> Iterator[str]:
    """All expressions of the alert rules and of the dashboard."""
    yield from (rule["expr"] for rule in alert_rules())
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def services(mesh: Mesh) -> list[tuple[str, str]]:
    """Name and address of each service; the broker has no pages."""
    return [(one.name, one.address) for one in mesh.stack.state.services if role_of(one.name) in NAMES]


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of a page of the service that listens on the address."""
    host, _, port = address.rpartition(":")
    try:
        with urllib.request.urlopen(f"http://{host}:{int(port) + 1000}{path}", timeout=30) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_every_service_serves_its_three_pages_and_says_who_it_is(
    mesh: Mesh, tmp_path: Path, tmp_topic: Callable[..., str]
) -> None:
    topic = mesh.create_topic(tmp_topic(), partitions=1)
    await mesh.apply(topic, parquet_sink(topic, tmp_path, tasks=1))
    await mesh.until_running(topic, 1)
    await asyncio.to_thread(mesh.produce, topic, range(100))
    await until_pages(mesh, topic, lambda one: _LATENCY in one, "on a worker's page, with records")
    names: dict[str, str] = {}
    pages: dict[str, str] = {}
    for service, address in services(mesh):
        status, page = await asyncio.to_thread(get, address, "/metrics")
        assert status == 200
        pages[service] = page
        found = problems(metrics_of(page))
        assert not [line for line in found if line.startswith(("herdmesh_", "kafka_connect_"))], service
        buckets = Counter(_LE.sub("", line.rpartition(" ")[0]) for line in page.splitlines() if "_bucket{" in line)
        assert not buckets or max(buckets.values()) <= BUCKETS_MAX, (service, buckets.most_common(3))
        target = next(line for line in page.splitlines() if line.startswith("target_info{"))
        names[service] = target.split('service_name="')[1].split('"')[0]
        assert 'service_instance_id="' in target
        for path, wanted in (("/healthz", 200), ("/readyz", 200), ("/", 404), ("/health", 404)):
            status, body = await asyncio.to_thread(get, address, path)
            assert status == wanted, (service, path, body)
    assert names == {name: f"herdmesh.{NAMES[role_of(name)]}" for name in names}
    assert {role_of(name) for name in names} == set(NAMES)
    found_series = labels_on(pages.values())
    known = labels_by_name()
    for name, labels in found_series.items():
        if name.startswith(("herdmesh_", "kafka_connect_")):
            assert name in known, f"{name} is not in docs/reference/metrics.md"
            assert labels <= {*known[name], "le", *_RESOURCE}, f"{name} has other labels than docs/reference/metrics.md"
    shown = {one.name for expression in expressions() for one in used_series(expression)}
    absent = {name for name in shown - found_series.keys() if not _ONLY_SOMETIMES.search(name)}
    assert not absent, "the dashboard and the alerts use series that no page has"
    leader = next(page for page in pages.values() if "herdmesh_herder_leader 1.0" in page)
    assert 'herdmesh_herder_tasks{state="running",target_state="started"}' in leader
    assert 'role="writer"' in pages["config-store"]
    await mesh.delete(topic)


async def test_promtool_accepts_the_pages(mesh: Mesh) -> None:
    for service, address in services(mesh):
        _, page = await asyncio.to_thread(get, address, "/metrics")
        # `python_` and `process_` series are those of Prometheus' own client.
        _, output = await asyncio.to_thread(promtool.run, "check", "metrics", page=page)
        found = [line for line in output.splitlines() if line.startswith(("herdmesh_", "kafka_connect_", "error"))]
        assert not found, f"{service}: {output}"
