"""Tests of dead letters as JSON and back, and of the commands with a herder that records its requests."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import BadParameter, Exit

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli.commands import dlq as command
from herdmesh.cli.display import dead_letters
from herdmesh.cli.display.output import Format
from herdmesh.cli.errors import CommandError
from herdmesh.cli.runner import run
from herdmesh.cli.times import moment
from herdmesh.connect.topics.error_headers import ERROR_HEADER_PREFIX

NULLABLE = st.none() | st.binary(max_size=12) | st.text(max_size=6).map(lambda text: text.encode("utf-8", "replace"))


_TRACE = "DataException\n\tat x(y.py:1)\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"


def letter(offset: int, value: bytes | None = b"{bad", **errors: str) -> admin.DeadLetter:
    told = {
        "topic": "orders", "partition": "2", "offset": "991", "connector.name": "a", "task.id": "0",
        "stage": "VALUE_CONVERTER", "class.name": "org.apache.kafka.connect.json.JsonConverter",
        "exception.class.name": "org.apache.kafka.connect.errors.DataException",
        "exception.message": "Unexpected\ncharacter [b]", "exception.stacktrace": _TRACE,
        **errors,
    }  # fmt: skip
    found = admin.DeadLetter(
        offset=offset, key=b"k", error_headers={ERROR_HEADER_PREFIX + name: text for name, text in told.items()}
    )
    if value is not None:
        found.value = value
    found.time.FromJsonString("2026-11-20T08:00:00.5Z")
    return found


# --- the form


@given(NULLABLE, NULLABLE, st.lists(st.tuples(st.text(max_size=4), NULLABLE), max_size=3))
def test_an_unedited_dead_letter_is_read_back_unchanged(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    given_letter = letter(17, value)
    given_letter.ClearField("key")
    if key is not None:
        given_letter.key = key
    for name, data in headers:
        given_letter.headers.add(name=name, value=data)
    (back,) = dead_letters.read("a", "f", json.dumps(dead_letters.document("a", "dlq", given_letter)))
    assert back.mended
    assert (back.partition, back.offset) == (0, 17)
    assert [back.HasField("key"), back.key, back.HasField("value"), back.value] == [
        key is not None, key or b"", value is not None, value or b"",
    ]  # fmt: skip
    assert list(back.headers) == list(given_letter.headers)
    assert dict(back.error_headers) == {ERROR_HEADER_PREFIX + "topic": "orders", ERROR_HEADER_PREFIX + "partition": "2"}


def test_fields_that_a_sources_record_does_not_have_are_null() -> None:
    shown = dead_letters.brief("a", "dlq", letter(0, partition="-1"))
    assert shown["original"] == {"topic": "orders", "partition": None, "offset": 991}


def test_a_value_may_be_json_and_the_partition_may_be_left_open() -> None:
    edited = {"letter": "0:1", "value": {"id": 7, "name": "é"}, "original": {"topic": "t", "partition": None}}
    (back,) = dead_letters.read("a", "f", json.dumps({"letters": [edited]}))
    assert back.value.decode() == '{"id":7,"name":"é"}'
    assert not back.HasField("key")
    assert dict(back.error_headers) == {ERROR_HEADER_PREFIX + "topic": "t"}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("{", "not JSON"),
        ("[]", "it has no dead letter"),
        ('[{"value": 1}]', 'letter 1 has no "letter"'),
        ('{"letter": "0:1"}', 'letter 0:1 has no "value"'),
        ('{"letter": "01", "value": null}', "'01' is not a dead letter: write PARTITION:OFFSET"),
        ('{"letter": "0:1", "value": null, "connector": "b"}', "letter 0:1 is of connector b"),
        ('{"letter": "0:1", "value": "x", "value_encoding": "hex"}', "no encoding hex; there are utf-8 and base64"),
        ('{"letter": "0:1", "value": "?", "value_encoding": "base64"}', "letter 0:1, value is not base64"),
        ('{"letter": "0:1", "value": "x", "original": "t"}', '"original" is an object'),
        ('{"letter": "0:1", "value": "x", "headers": ["h"]}', "a header is"),
    ],
)
def test_errors_in_a_file_of_dead_letters_are_named(document: str, why: str) -> None:
    with pytest.raises(CommandError, match="standard input") as refused:
        dead_letters.read("a", "-", document)
    assert why in refused.value.message


def test_since_is_an_age_or_a_time() -> None:
    now = datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert moment("90m", now) == datetime(2026, 11, 22, 6, 30, tzinfo=UTC)
    assert moment("2d", now) == datetime(2026, 11, 20, 8, tzinfo=UTC)
    assert moment("2026-11-21T10:00", now) == datetime(2026, 11, 21, 10, tzinfo=UTC)
    with pytest.raises(CommandError, match="write an age such as 15m"):
        moment("yesterday", now)


# --- the commands


class Herder:
    """A herder with five dead letters, two per page, that replays two per step and refuses the third."""

    ListDeadLetters = ReplayDeadLetters = None

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def call(self, _method: Any, request: Any) -> Any:
        kept = type(request)()
        kept.CopyFrom(request)
        self.asked.append(kept)
        begin = int(request.page_token or 0)
        more = str(begin + 2) if begin < 4 else ""
        if isinstance(request, admin.ListDeadLettersRequest):
            found = [letter(4 - at) for at in range(begin, min(begin + 2, 5))]
            if request.places:
                found, more = [letter(place.offset) for place in request.places if place.offset < 5], ""
            return admin.ListDeadLettersResponse(letters=found, topic="dlq", next_page_token=more)
        if request.letters:
            return admin.ReplayDeadLettersResponse(replayed_count=len(request.letters))
        reply = admin.ReplayDeadLettersResponse(next_page_token=more)
        for at in range(begin, min(begin + 2, 5)):
            place = admin.DeadLetterPlace(offset=at)
            if at == 2:
                reply.refused.add(place=place, reason="topic gone does not exist (any more)")
            else:
                reply.replayed_count += 1
                reply.replayed.add(place=place, topic="orders", partition=2)
        return reply


Herd = Callable[..., tuple[int, str, str]]


@pytest.fixture
def herder() -> Herder:
    return Herder()


@pytest.fixture
def herd(herder: Herder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Herd:
    """A function that runs a command and returns exit code, standard output, standard error."""

    def with_herder(output: Format, _: str | None, work: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        run(output, lambda: work(herder))

    monkeypatch.setattr(command, "with_herder", with_herder)

    def ran(which: Callable[..., None], **options: Any) -> tuple[int, str, str]:
        code = 0
        try:
            which("a", **options)
        except Exit as end:
            code = end.exit_code
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return ran


LIST = {"stage": "", "error": "", "since": "", "replayed": False, "limit": 0}


def test_a_list_has_all_pages_and_a_line_for_each_dead_letter(herd: Herd, herder: Herder) -> None:
    code, out, _ = herd(command.list_dead_letters, **LIST, output=Format.TABLE)
    header, *lines = out.splitlines()
    assert (code, header.split()) == (0, ["LETTER", "TIME", "STAGE", "ERROR", "ORIGINAL", "MESSAGE"])
    assert [line.split()[0] for line in lines] == ["0:4", "0:3", "0:2", "0:1", "0:0"]
    assert lines[0].split()[1:] == [
        "2026-11-20", "VALUE_CONVERTER", "DataException", "orders-2@991", "Unexpected", "character", "[b]",
    ]  # fmt: skip
    assert herder.asked[0].view == admin.DEAD_LETTER_VIEW_BRIEF


def test_a_list_with_a_limit_reports_that_there_are_more(herd: Herd, herder: Herder) -> None:
    options = {**LIST, "limit": 3, "stage": "TASK_PUT", "since": "2026-11-21", "replayed": True}
    _, out, err = herd(command.list_dead_letters, **options, output=Format.WIDE)
    assert (len(out.splitlines()), "the newest 3; there are more" in err) == (4, True)
    assert "org.apache.kafka.connect.json.JsonConverter" in out
    assert "2026-11-20 08:00:00" in out
    first = herder.asked[0]
    assert (first.page_size, first.stage, first.include_replayed, first.since.ToJsonString()) == (
        4, "TASK_PUT", True, "2026-11-21T00:00:00Z",
    )  # fmt: skip


def test_a_list_of_letters_without_context_headers_says_how_to_get_a_cause(
    herd: Herd, herder: Herder, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, err = herd(command.list_dead_letters, **LIST, output=Format.TABLE)
    assert err == ""
    bare = admin.ListDeadLettersResponse(letters=[admin.DeadLetter(partition=0, offset=1, value=b"x")], topic="dlq")

    async def call(_method: Any, _request: Any) -> Any:
        return bare

    monkeypatch.setattr(herder, "call", call)
    _, out, err = herd(command.list_dead_letters, **LIST, output=Format.TABLE)
    assert out.splitlines()[1].split()[:1] == ["0:1"]
    assert "1 of 1 have no cause" in err
    assert "errors.deadletterqueue.context.headers.enable=true" in err


def test_replay_accepts_the_listed_documents(herd: Herd, herder: Herder, tmp_path: Path) -> None:
    _, out, _ = herd(command.list_dead_letters, **LIST, output=Format.JSON)
    (tmp_path / "letters.json").write_text(out)
    options = {"places": None, "everything": False, "again": False, "dry_run": False}
    code, text, _ = herd(command.replay, **options, files=[str(tmp_path / "letters.json")])
    assert (code, text.strip()) == (0, "5 dead letters of a replayed")
    sent = herder.asked[-1]
    assert ([one.offset for one in sent.letters], sent.letters[0].mended) == ([0, 1, 2, 3, 4], True)
    assert sent.request_id


def test_show_prints_a_whole_dead_letter_or_an_error_if_there_is_none(herd: Herd) -> None:
    code, out, _ = herd(command.show, place="0:4")
    assert code == 0
    for text in ("0:4 of dlq", "orders-2@991", "DataException", "{bad", "at x(y.py:1)"):
        assert text in out
    assert "java.base" not in out
    _, out, _ = herd(command.show, place="0:4", verbose=True)
    assert "at java.base/java.lang.Thread.run(Thread.java:840)" in out
    code, out, _ = herd(command.show, place="0:9", output=Format.JSON)
    assert (code, json.loads(out)["error"]["reason"]) == (3, "DEAD_LETTER_NOT_FOUND")


def test_replay_of_all_continues_to_the_last_step_and_reports_what_stays(herd: Herd, herder: Herder) -> None:
    options = {"places": None, "files": None, "again": False, "dry_run": False}
    code, out, err = herd(command.replay, **options, everything=True)
    assert (code, out.strip()) == (11, "4 dead letters of a replayed: 4 to orders")
    assert "0:2 not replayed: topic gone does not exist" in err
    assert [one.page_token for one in herder.asked] == ["", "2", "4"]
    assert len({one.request_id for one in herder.asked}) == 3
    code, out, _ = herd(command.replay, **options, everything=True, output=Format.JSON)
    assert (code, json.loads(out)["refused"][0]["letter"]) == (11, "0:2")
    code, out, _ = herd(command.replay, **{**options, "dry_run": True}, everything=True)
    assert "0:0 -> orders-2" in out.splitlines()


def test_named_dead_letters_are_replayed_in_one_request_and_from_standard_input(
    herd: Herd, herder: Herder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"letter": "0:3", "value": "mended"}'))
    options = {"everything": False, "again": True, "dry_run": False}
    code, _, _ = herd(command.replay, **options, places=["0:1", "0:2"], files=["-"])
    (sent,) = herder.asked
    assert code == 0
    assert [(one.offset, one.mended, one.value) for one in sent.letters] == [
        (1, False, b""),
        (2, False, b""),
        (3, True, b"mended"),
    ]
    assert (sent.again, sent.name) == (True, "a")


@pytest.mark.parametrize(("everything", "places"), [(False, None), (True, ["0:1"])])
def test_replay_requires_named_dead_letters_or_all(herd: Herd, everything: bool, places: list[str] | None) -> None:
    with pytest.raises(BadParameter, match="or all of them with --all"):
        herd(command.replay, places=places, everything=everything, files=None, again=False, dry_run=False)


def test_many_dead_letters_of_a_file_are_sent_in_requests_of_bounded_size(
    herd: Herd, herder: Herder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LETTERS_MAX", 2)
    many = [{"letter": f"0:{number}", "value": "x" * 50} for number in range(3)]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(many)))
    options = {"everything": False, "again": False, "dry_run": False, "places": None}
    herd(command.replay, **options, files=["-"])
    assert [len(one.letters) for one in herder.asked] == [2, 1]
    assert herder.asked[0].request_id != herder.asked[1].request_id
