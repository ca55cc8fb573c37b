"""Pages of a service over HTTP: only /metrics, /healthz and /readyz exist, and the health pages tell the truth."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator

import httpx
import pytest

from herdmesh.rpc.monitoring import http_pages
from herdmesh.rpc.monitoring.http_pages import HttpPages, Readiness
from herdmesh.rpc.server import Server
from tests.support.promlint import metrics_of, problems


class Service:
    """A service with a readiness that a test sets."""

    def __init__(self) -> None:
        self.readiness = Readiness(False, "it replays its topic", {"s": "NOT_SERVING"})
        self.pages = HttpPages("127.0.0.1", 0, lambda: self.readiness)
        self.url = f"http://127.0.0.1:{self.pages.start()}"

    async def get(self, path: str, method: str = "GET") -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.request(method, self.url + path, timeout=30)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    yield made
    await made.pages.stop()


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics/", "/metrics/x", "/favicon.ico"])
async def test_no_other_path_is_green(service: Service, path: str) -> None:
    found = await service.get(path)
    assert found.status_code == 404
    assert "/readyz" in found.json()["error"]


async def test_ready_follows_the_service(service: Service) -> None:
    found = await service.get("/readyz")
    assert found.status_code == 503
    assert found.json() == {"ready": False, "reason": "it replays its topic", "services": {"s": "NOT_SERVING"}}
    assert (await service.get("/healthz?verbose=1")).status_code == 200, "a service that is not ready is to live on"
    service.readiness = Readiness(True, "role writer", {"s": "SERVING"})
    found = await service.get("/readyz")
    assert (found.status_code, found.json()["reason"]) == (200, "role writer")


async def test_a_process_whose_event_loop_is_stuck_is_neither_healthy_nor_ready(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pages, "LOOP_TIMEOUT_S", 0.05)
    found: dict[str, httpx.Response] = {}

    def probe() -> None:
        for path in ("/healthz", "/readyz", "/metrics"):
            found[path] = httpx.get(service.url + path, timeout=30)

    probing = threading.Thread(target=probe)
    probing.start()
    probing.join()  # blocks this test's event loop
    assert {path: one.status_code for path, one in found.items()} == {"/healthz": 503, "/readyz": 503, "/metrics": 200}
    assert "event loop" in found["/healthz"].json()["reason"]


async def test_metrics_are_text_that_passes_the_check_and_name_the_process(service: Service) -> None:
    found = await service.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    shown = metrics_of(found.text)
    assert not [one for one in problems(shown) if one.startswith(("herdmesh", "kafka"))]
    (target,) = [one for one in shown if one.name == "target_info"]
    assert target.labels >= {"service_name", "service_instance_id", "service_version", "host_name"}


async def test_head_has_no_body_and_other_methods_are_refused(service: Service) -> None:
    head = await service.get("/readyz", "HEAD")
    assert (head.status_code, head.content) == (503, b"")
    assert (await service.get("/metrics", "POST")).status_code == 405


async def test_a_server_without_services_is_not_ready() -> None:
    made = Server("127.0.0.1:0", [])
    await made.start()
    try:
        port = made.http_port
        assert port is not None
        async with httpx.AsyncClient() as client:
            found = await client.get(f"http://127.0.0.1:{port}/readyz", timeout=30)
        assert found.status_code == 503
        assert "no service" in json.loads(found.text)["reason"]
    finally:
        await made.stop(0)
