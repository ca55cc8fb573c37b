"""docs/connectors/http-sink.md: its request and its dead letter, from Datagen's records to a receiver on a real socket.

Where a batch begins and ends depends on Kafka's answers: numbers of records and bytes of one request are not compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from libs.connectors.tests.datagen.test_datagen import specs
from libs.connectors.tests.http.http_receiver import Answer, Received, Receiver, offsets_of
from libs.connectors.tests.http.test_http_sink import QUEUE, TASK
from libs.core.tests.engine.harness import Kafka, make_spec, run_here
from tests.docs.blocks import ROOT, blocks

pytestmark = pytest.mark.kafka

PAGE: Final = "docs/connectors/http-sink.md"
REQUEST, LETTER = (block.text for block in blocks(PAGE) if block.language == "text")
#: On a busy machine a run may take several transactions: a marker between records changes the offsets of later ones.
ONE_TRANSACTION: Final = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "30000"}
_REFUSED: Final = re.compile(r"no orders from (\w+): ")
_COUNTS: Final = re.compile(r"Of ([\d,]+) records the receiver accepted (\d+)")
_PORT: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")


def test_a_request_and_a_dead_letter_are_those_of_the_page(kafka_bootstrap: str, tmp_topic: Callable[..., str]) -> None:
    broker, names = Kafka(kafka_bootstrap), {tmp_topic("out"): "orders-out", tmp_topic("orders"): "orders"}
    sink, topic = names
    counted, refused = _COUNTS.search((ROOT / PAGE).read_text("utf-8")), _REFUSED.search(LETTER)
    assert counted is not None
    assert refused is not None
    count, accepted = (int(number.replace(",", "")) for number in counted.groups())
    broker.create_topic(topic, 2)
    run = {"random.seed": "7", "iterations": str(count), **ONE_TRANSACTION}
    (source,) = specs(broker, tmp_topic("in"), topic, run)
    run_here(source)
    (config,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    for key in [key for key in config if "authorization" in key]:
        del config[key]
    with Receiver(_without_orders_from(refused[1])) as receiver:
        config |= {"topics": topic, "http.url": receiver.url, "batch.max.size": "100", **QUEUE}
        letters = f"{sink}-refused"
        run_here(make_spec(broker.bootstrap, sink, TASK, config | {"errors.deadletterqueue.topic.name": letters}))
        requests, taken = receiver.received, [value for one in receiver.taken for value in json.loads(one.body)]
    assert (len(taken), len(broker.records(letters))) == (accepted, count - accepted)
    _compare(REQUEST, requests, names)
    shown = dict(line.split(maxsplit=1) for line in _PORT.sub("PORT", LETTER).splitlines())
    found = [dict(cast("list[Any]", one.headers())) for one in broker.messages(letters, 1)]
    told = [{key: _PORT.sub("PORT", _there(one[key].decode(), names)) for key in shown} for one in found]
    assert shown in told


def _without_orders_from(state: str) -> Callable[[Received], Answer]:
    def answer(request: Received) -> Answer:
        refused = [one["orderid"] for one in json.loads(request.body) if one["address"]["state"] == state]
        return Answer(422, body=f"no orders from {state}: {refused}".encode()) if refused else Answer()

    return answer


def _there(text: str, names: dict[str, str]) -> str:
    for here, there in names.items():
        text = text.replace(here, there)
    return text


def _compare(shown: str, requests: list[Received], names: dict[str, str]) -> None:
    """Compare the shown request with the one that has its first record: start line, headers, and that record's text."""
    head, body = shown.split("\n\n")
    (start, *lines), shortened = head.splitlines(), body.rstrip().removesuffix(",...")
    headers = dict(line.split(": ", 1) for line in lines)
    first, last = (offsets_of(headers["herdmesh-offsets"])[at] for at in (0, -1))
    key = headers["idempotency-key"]
    assert key.endswith(f"/{first}-{last}")
    number = int(key.split("/")[2])
    request = next(one for one in requests if one.partition[1] == number and first in one.offsets)
    assert f"{request.method} {request.path}" == start
    assert int(request.headers["content-length"]) == len(request.body)
    own = f"{request.offsets[0]}-{request.offsets[-1]}"
    mask = {"idempotency-key": key.replace(f"{first}-{last}", own), "herdmesh-offsets": own}
    mask["content-length"] = str(len(request.body))
    assert {name: _there(request.headers[name], names) for name in headers} == headers | mask
    (record,) = json.loads(f"{shortened}]")
    assert json.loads(request.body)[request.offsets.index(first)] == record
    assert shortened[1:].encode() in request.body
