"""Tests of one attempt against a real receiver: the meaning of
each outcome, authorization, TLS, and secrets in messages.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable
from email.utils import formatdate
from urllib.parse import parse_qs

import pytest

from herdmesh.connect.errors import ConfigError
from herdmesh.connect.registry.retry_after import RETRY_AFTER_MAX_S, retry_after_s
from herdmesh.connect.spi.connector import SinkBatch
from herdmesh.connectors.http.client import Busy, HttpClient, RequestRefused
from herdmesh.connectors.http.requests import HttpRequest, requests_of
from herdmesh.connectors.http.settings import settings_of
from libs.connectors.tests.http.http_receiver import PEM, Answer, Received, Receiver

NOW_S = 1_000_000.0


def send(config: dict[str, str], *, key: str = "k") -> None:
    """Send one record, once."""
    settings = settings_of(config)
    batch = SinkBatch("t", 0, 5, 5, [{"a": 1}], [key], [5], [None], original_topic="t")
    client = HttpClient(settings, "c")
    try:
        client.send(_only(requests_of(batch, settings, _never)))
    finally:
        client.close()


def _only(made: list[HttpRequest]) -> HttpRequest:
    (request,) = made
    return request


def _never(_batch: SinkBatch, _place: int, error: BaseException) -> None:
    raise error


def answering(status: int, **headers: str) -> Callable[[Received], Answer]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: Answer(status, named, b"because  \n of that")


def test_a_request_has_the_configured_method_headers_and_body() -> None:
    with Receiver() as receiver:
        send(
            {
                "http.url": f"{receiver.url}/${{topic}}?k=${{key}}",
                "request.method": "PATCH",
                "http.headers.secret": "X-Api-Key:geheim-1",
                "http.compression": "gzip",
            }
        )
        (request,) = receiver.taken
    assert (request.method, request.path) == ("PATCH", "/in/t?k=k")
    assert request.body == b'{"a":1}'
    expected = {
        "x-api-key": "geheim-1",
        "content-type": "application/json",
        "content-encoding": "gzip",
        "idempotency-key": "c/t/0/5-5",
        "herdmesh-offsets": "5",
        "user-agent": "herdmesh",
    }
    assert expected.items() <= request.headers.items()
    assert "authorization" not in request.headers


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy, Receiver() as receiver:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        send({"http.url": receiver.url})
        assert (len(proxy.received), len(receiver.taken)) == (0, 1)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 207])
def test_a_2xx_status_is_success(status: int) -> None:
    with Receiver(answering(status)) as receiver:
        send({"http.url": receiver.url})


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_retriable_statuses_raise_busy(status: int) -> None:
    with Receiver(answering(status, Retry_After="17")) as receiver, pytest.raises(Busy, match=f"{status}") as busy:
        send({"http.url": receiver.url + "?token=secret"})
    assert busy.value.wait_s == 17
    assert "because of that" in str(busy.value)
    assert "secret" not in str(busy.value)


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 422, 451])
def test_another_4xx_status_refuses_the_record_by_name(status: int) -> None:
    with Receiver(answering(status)) as receiver, pytest.raises(RequestRefused, match="record t-0@5") as refused:
        send({"http.url": receiver.url + "/${key}"})
    assert refused.value.too_large == (status == 413)


@pytest.mark.parametrize(
    ("status", "field"),
    [
        (401, "http.authorization.type"),
        (403, "http.authorization.type"),
        (301, "http.url"),
        (307, "http.url"),
        (404, "http.url"),
        (405, "http.url"),
        (410, "http.url"),
    ],
)
def test_statuses_that_need_another_config_name_its_key(status: int, field: str) -> None:
    with Receiver(answering(status, Location="http://127.0.0.1:9/")) as receiver:
        with pytest.raises(ConfigError) as failed:
            send({"http.url": receiver.url})
        assert len(receiver.received) == 1
    assert failed.value.field == field


def test_a_refused_connection_a_timeout_and_a_broken_connection_raise_busy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Busy, match="no response"):
        send({"http.url": f"http://127.0.0.1:{port}/"})
    with Receiver(lambda _: Answer(hangs=True)) as receiver, pytest.raises(Busy) as silent:
        send({"http.url": receiver.url, "http.timeout": "1"})
    assert not silent.value.is_broken
    with Receiver(lambda _: Answer(breaks=True)) as receiver, pytest.raises(Busy) as broken:
        send({"http.url": receiver.url})
    assert broken.value.is_broken


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("0", 0.0),
        ("12", 12.0),
        ("99999", RETRY_AFTER_MAX_S),
        (formatdate(NOW_S + 9, usegmt=True), 9.0),
        (formatdate(NOW_S - 9, usegmt=True), 0.0),
        (formatdate(NOW_S + 86_400, usegmt=True), RETRY_AFTER_MAX_S),
    ],
)
def test_retry_after_is_parsed_as_seconds_or_a_date(text: str | None, seconds: float | None) -> None:
    assert retry_after_s(text, NOW_S) == seconds


@pytest.mark.parametrize("mode", ["HEADER", "URL"])
def test_a_token_is_fetched_once_and_again_when_refused(mode: str) -> None:
    given: list[str] = []

    def answer(request: Received) -> Answer:
        if request.path == "/in/token":
            given.append(f"token-{len(given)}")
            return Answer(body=json.dumps({"the_token": given[-1], "expires_in": 3600}).encode())
        return Answer(200 if request.headers["authorization"] == "Bearer token-1" else 401)

    with Receiver(answer) as receiver:
        config = {
            "http.url": receiver.url,
            "http.authorization.type": "oauth2",
            "oauth2.access.token.url": f"{receiver.url}/token",
            "oauth2.client.id": "me",
            "oauth2.client.secret": "geheim-2",
            "oauth2.client.scope": "all",
            "oauth2.client.authorization.mode": mode,
            "oauth2.response.token.property": "the_token",
            "http.headers.secret": "X-Api-Key:geheim-3",
        }
        send(config)
        asked = [request for request in receiver.received if request.path == "/in/token"]
        assert len(asked) == 2
        assert len(receiver.received) == 4
    form = parse_qs(asked[0].body.decode())
    assert form["grant_type"] == ["client_credentials"]
    assert form["scope"] == ["all"]
    if mode == "URL":
        assert (form["client_id"], form["client_secret"]) == (["me"], ["geheim-2"])
    else:
        assert asked[0].headers["authorization"] == "Basic " + base64.b64encode(b"me:geheim-2").decode()
    assert "x-api-key" not in asked[0].headers


@pytest.mark.parametrize(
    ("answer", "raised", "field"),
    [
        (Answer(401), ConfigError, "oauth2.client.secret"),
        (Answer(200, body=b"no json"), ConfigError, "oauth2.access.token.url"),
        (Answer(200, body=b"{}"), ConfigError, "oauth2.response.token.property"),
        (Answer(503), Busy, ""),
        (Answer(breaks=True), Busy, ""),
    ],
)
def test_nothing_is_sent_without_a_token(answer: Answer, raised: type[Exception], field: str) -> None:
    with Receiver(lambda _: answer) as receiver:
        with pytest.raises(raised) as failed:
            send(
                {
                    "http.url": receiver.url,
                    "http.authorization.type": "oauth2",
                    "oauth2.access.token.url": f"{receiver.url}/token",
                    "oauth2.client.id": "me",
                    "oauth2.client.secret": "geheim-4",
                }
            )
        assert [request.path for request in receiver.received] == ["/in/token"]
    assert getattr(failed.value, "field", "") == field
    assert "geheim-4" not in str(failed.value)


def test_a_certificate_is_trusted_with_its_authority_configured() -> None:
    with Receiver(tls=True) as receiver:
        with pytest.raises(ConfigError) as failed:
            send({"http.url": receiver.url})
        assert failed.value.field == "https.ssl.truststore.location"
        assert not receiver.received
        send({"http.url": receiver.url, "https.ssl.truststore.location": str(PEM)})
        assert len(receiver.taken) == 1


def test_a_file_that_is_not_pem_is_refused_by_its_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.mktemp("tls") / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    for key in ("https.ssl.truststore.location", "https.ssl.keystore.location"):
        with pytest.raises(ConfigError) as failed:
            send({"http.url": "https://127.0.0.1:1/", key: str(store)})
        assert failed.value.field == key
