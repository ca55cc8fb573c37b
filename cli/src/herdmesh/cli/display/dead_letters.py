"""Dead letters as JSON: the output of `herd dlq show -o json` and the input of `herd dlq replay -f`.

Owns that form, and reading it from an edited file. Bytes are text if they are UTF-8, else base64; a member beside them
names the encoding. Does not fetch and does not print.

Invariant: a dead letter that was printed and is read back unedited is the same to the last byte.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, cast

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli.display.views import Json
from herdmesh.cli.errors import EXIT_USAGE, CommandError
from herdmesh.connect.topics import ERROR_HEADER_PREFIX

_REPLAYED = "__herdmesh.replayed"
_ERROR_FIELDS = {
    "stage": "stage",
    "class": "class.name",
    "exception": "exception.class.name",
    "message": "exception.message",
    "stacktrace": "exception.stacktrace",
}


def place_of(text: str) -> admin.DeadLetterPlace:
    """`0:17` -> partition and offset. Raises CommandError."""
    partition, colon, offset = text.strip().partition(":")
    if not (colon and partition.isdecimal() and offset.isdecimal()) or len(partition) > 9 or len(offset) > 18:
        text = f"{text!r} is not a dead letter: write PARTITION:OFFSET, as `herd dlq list` shows it"
        raise CommandError("USAGE", text, exit_code=EXIT_USAGE)
    return admin.DeadLetterPlace(partition=int(partition), offset=int(offset))


def place_text(place: admin.DeadLetterPlace | admin.DeadLetter) -> str:
    """The inverse of `place_of`."""
    return f"{place.partition}:{place.offset}"


def document(connector: str, queue: str, letter: admin.DeadLetter) -> Json:
    """The document of a dead letter that was fetched in full."""
    key, key_encoding = _text(letter.key if letter.HasField("key") else None)
    value, value_encoding = _text(letter.value if letter.HasField("value") else None)
    found = brief(connector, queue, letter)
    found["error"]["stacktrace"] = _error(letter, "stacktrace")
    headers: list[Json] = []
    for one in letter.headers:
        text, encoding = _text(one.value if one.HasField("value") else None)
        headers.append({"name": one.name, "value": text, "encoding": encoding})
    return {
        **found,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": headers,
    }


def brief(connector: str, queue: str, letter: admin.DeadLetter) -> Json:
    """The part of the document that every listed dead letter has."""
    return {
        "connector": connector,
        "queue": queue,
        "letter": place_text(letter),
        "time": letter.time.ToJsonString() if letter.HasField("time") else None,
        "replayed": letter.replayed,
        "cut": letter.cut,
        "original": {
            "topic": _header(letter, "topic"),
            "partition": _number(_header(letter, "partition")),
            "offset": _number(_header(letter, "offset")),
        },
        "task": _number(_header(letter, "task.id")),
        "error": {name: _error(letter, name) for name in _ERROR_FIELDS if name != "stacktrace"},
    }


def attempts(shown: Json) -> int:
    """Number of attempts for the record: one, and one more for each earlier replay."""
    return 1 + sum(one["name"] == _REPLAYED for one in shown["headers"])


def decoded(text: str, encoding: str | None) -> bytes:
    """The bytes of a printed text."""
    return base64.b64decode(text) if encoding == "base64" else text.encode()


def is_plain(text: str) -> bool:
    """True when a terminal shows the text unchanged."""
    return all(character.isprintable() or character in "\t\n\r" for character in text)


# --- reading


def read(connector: str, source: str, text: str) -> list[admin.DeadLetter]:
    """The dead letters of a file: one document, a list of them, or `{"letters": [...]}`. Raises CommandError."""
    try:
        parsed: Any = json.loads(text)
    except ValueError as error:
        raise _unusable(source, f"not JSON: {error}") from None
    if isinstance(parsed, dict) and "letters" in parsed:
        parsed = cast("Json", parsed)["letters"]
    items = cast("list[Any]", parsed if isinstance(parsed, list) else [parsed])
    if not items:
        raise _unusable(source, "it has no dead letter")
    return [_letter(connector, source, number, item) for number, item in enumerate(items, 1)]


def _letter(connector: str, source: str, number: int, item: Any) -> admin.DeadLetter:
    where = f"letter {number}"
    if not isinstance(item, dict) or not isinstance(cast("Json", item).get("letter"), str):
        raise _unusable(source, f'{where} has no "letter": take what `herd dlq show -o json` prints')
    fields = cast("Json", item)
    where = f"letter {fields['letter']}"
    if fields.get("connector", connector) != connector:
        raise _unusable(source, f"{where} is of connector {fields['connector']}")
    if "value" not in fields:
        raise _unusable(source, f'{where} has no "value": null is a value too; `-o json` of list and show prints it')
    try:
        place = place_of(fields["letter"])
    except CommandError as error:
        raise _unusable(source, error.message) from None
    letter = admin.DeadLetter(partition=place.partition, offset=place.offset, mended=True)
    key = _bytes(fields.get("key"), fields.get("key_encoding"), source, f"{where}, key")
    value = _bytes(fields["value"], fields.get("value_encoding"), source, f"{where}, value")
    if key is not None:
        letter.key = key
    if value is not None:
        letter.value = value
    original: Any = fields.get("original") or {}
    if not isinstance(original, dict):
        raise _unusable(source, f'{where}: "original" is an object with topic and partition')
    for name in ("topic", "partition"):
        given = cast("Json", original).get(name)
        if given is not None:
            letter.error_headers[ERROR_HEADER_PREFIX + name] = str(given)
    for one in cast("list[Any]", fields.get("headers") or []):
        _add_header(letter, one, source, where)
    return letter


def _add_header(letter: admin.DeadLetter, given: Any, source: str, where: str) -> None:
    if not isinstance(given, dict) or not isinstance(cast("Json", given).get("name"), str):
        raise _unusable(source, f'{where}: a header is {{"name": ..., "value": ...}}')
    header = cast("Json", given)
    value = _bytes(header.get("value"), header.get("encoding"), source, f"{where}, header {header['name']}")
    letter.headers.add(name=header["name"], value=value)


def _bytes(given: Any, encoding: Any, source: str, where: str) -> bytes | None:
    """Text in the named encoding; any other JSON as its own text, so that a value need not be written as a string."""
    if given is None:
        return None
    if not isinstance(given, str):
        return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()
    if encoding in (None, "utf-8"):
        return given.encode()
    if encoding != "base64":
        raise _unusable(source, f"{where}: no encoding {encoding}; there are utf-8 and base64")
    try:
        return base64.b64decode(given, validate=True)
    except binascii.Error as error:
        raise _unusable(source, f"{where} is not base64: {error}") from None


def _text(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _header(letter: admin.DeadLetter, name: str) -> str | None:
    return letter.error_headers.get(ERROR_HEADER_PREFIX + name)


def _error(letter: admin.DeadLetter, name: str) -> str | None:
    return _header(letter, _ERROR_FIELDS[name])


def _number(text: str | None) -> int | None:
    """A number, or None; None also for -1, which Connect writes for a field that a source's record does not have."""
    return int(text) if text is not None and text.isdecimal() else None


def _unusable(source: str, what: str) -> CommandError:
    return CommandError("USAGE", f"{'standard input' if source == '-' else source}: {what}", exit_code=EXIT_USAGE)
