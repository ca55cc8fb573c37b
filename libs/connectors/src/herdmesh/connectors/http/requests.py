"""Conversion of a batch of records to HTTP requests: the
grouping of records, URLs, bodies, and idempotency keys.

Owns only that: `client` sends, `partition_lanes` waits.

    Idempotency-Key     CONNECTOR/TOPIC/PARTITION/FIRST-LAST    the connector's name percent-encoded
    Herdmesh-Offsets    12-40,42                                of its records, in their order in the body

A batch that is sent again after a crash may be split differently, so a request can hold records of an earlier one: a
receiver that wants each record once deduplicates by topic, partition and offsets, and remembers the last one.

Invariant: the requests of a batch hold its records in order, each
once, and a request that is created again has the same bytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote

from herdmesh.connectors.http.settings import HttpSettings
from herdmesh.connectors.values import part_of, payloads
from herdmesh.connectors.values.lines import text_of, texts_of
from herdmesh.sdk import ConnectError, DataError, PartitionId, SinkBatch

RANGES_MAX = 100
"""Maximum ranges of offsets in one request: its largest header
stays below 4,000 bytes, and servers accept twice that.
"""
_NO_PLACE = (b"", b".", b"..")
"""Path segments that a URL resolves away, so no topic or key may be one."""
Refuse = Callable[[SinkBatch, int, BaseException], None]
"""Handler of a record that no request can be built for: batch, place in it, error. May raise."""


@dataclass(slots=True)
class HttpRequest:
    """A request for some records of a batch. `places` are the records'
    places in the batch; `texts` and `offsets` are of the whole batch.
    """

    batch: SinkBatch = field(repr=False)
    places: Sequence[int]
    texts: Sequence[bytes] = field(repr=False)
    offsets: Sequence[int] = field(repr=False)
    method: str
    url: str = field(repr=False)

    @property
    def partition(self) -> PartitionId:
        """The source topic and partition of its records."""
        return self.batch.original_topic, self.batch.partition

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.offsets[self.places[0]]

    @property
    def last_offset(self) -> int:
        """Offset of its last record."""
        return self.offsets[self.places[-1]]

    def halves(self) -> tuple[HttpRequest, HttpRequest]:
        """Split it into two requests; it must have two records or more."""
        middle = len(self.places) // 2
        first, second = (
            HttpRequest(self.batch, places, self.texts, self.offsets, self.method, self.url)
            for places in (self.places[:middle], self.places[middle:])
        )
        return first, second

    def body(self, settings: HttpSettings) -> bytes:
        """Return the bytes to send; empty for a DELETE."""
        if self.method == "DELETE":
            return b""
        framing = settings.framing
        text = framing.separator.join([self.texts[place] for place in self.places])
        text = b"%b%b%b" % (framing.prefix, text, framing.suffix)
        return gzip.compress(text, 6, mtime=0) if settings.gzip else text

    def headers(self, connector: str, settings: HttpSettings) -> dict[str, str]:
        """Return the headers of this request alone."""
        topic, partition = self.partition
        key = f"{quote(connector, safe='')}/{topic}/{partition}/{self.first_offset}-{self.last_offset}"
        found = {"Idempotency-Key": key, "Herdmesh-Offsets": ranges_text([self.offsets[at] for at in self.places])}
        if settings.gzip and self.method != "DELETE":
            found["Content-Encoding"] = "gzip"
        return found

    def __str__(self) -> str:
        topic, partition = self.partition
        if len(self.places) == 1:
            return f"record {topic}-{partition}@{self.first_offset}"
        return f"records {topic}-{partition}@{self.first_offset}..{self.last_offset}"


def ranges_text(offsets: Sequence[int]) -> str:
    """Format ascending offsets as ranges: `12-40,42`."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return str(offsets[0]) if len(offsets) == 1 else f"{offsets[0]}-{offsets[-1]}"
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and offset == ranges[-1][1] + 1:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def requests_of(batch: SinkBatch, settings: HttpSettings, refuse: Refuse) -> list[HttpRequest]:
    """Return the requests of a batch, in the order of its records. Records without a value are skipped if the config
    ignores them; a record that cannot be sent is passed to `refuse`, and skipped when that returns.
    """
    if settings.url.by_topic and batch.topic.encode("utf-8", "replace") in _NO_PLACE:
        for place in range(len(batch)):
            refuse(batch, place, DataError(f"the topic '{batch.topic}' cannot be part of a URL"))
        return []
    texts, offsets = _texts(batch, settings, refuse), list(batch.offsets)
    is_whole = None not in texts and bool(offsets) and offsets[-1] - offsets[0] == len(offsets) - 1
    if is_whole and not settings.url.by_key:  # no record needs a check of its own
        (_, target), step = next(_urls(batch, settings, texts, refuse)), settings.batch_records_max
        cuts = [range(at, min(at + step, len(offsets))) for at in range(0, len(offsets), step)]
        return [HttpRequest(batch, places, cast("list[bytes]", texts), offsets, *target) for places in cuts]
    return _grouped(batch, settings, texts, offsets, refuse)


def _grouped(
    batch: SinkBatch, settings: HttpSettings, texts: list[bytes | None], offsets: list[int], refuse: Refuse
) -> list[HttpRequest]:
    """Group records by URL, maximum number, and maximum header length."""
    made: list[HttpRequest] = []
    places: list[int] = []
    target, ranges = ("", ""), 0
    known = [b"" if text is None else text for text in texts]
    for place, wanted in _urls(batch, settings, texts, refuse):
        starts_range = not places or offsets[place] != offsets[places[-1]] + 1
        alone = wanted[0] == "DELETE"
        full = len(places) >= settings.batch_records_max or (starts_range and ranges >= RANGES_MAX)
        if places and (wanted != target or alone or full):
            made.append(HttpRequest(batch, places, known, offsets, *target))
            places, ranges = [], 0
        target, ranges = wanted, ranges + (starts_range or not places)
        places.append(place)
    if places:
        made.append(HttpRequest(batch, places, known, offsets, *target))
    return made


def _texts(batch: SinkBatch, settings: HttpSettings, refuse: Refuse) -> list[bytes | None]:
    """Return the text to send for each value; None = nothing to send."""
    try:
        return _written(batch, settings)
    except ConnectError:
        pass  # a record is bad: find it, the others are sent
    made: list[bytes | None] = []
    for place in range(len(batch)):
        try:
            made += _written(part_of(batch, place, place + 1), settings)
        except ConnectError as error:
            refuse(batch, place, error)
            made.append(None)
    return made


def _written(batch: SinkBatch, settings: HttpSettings) -> list[bytes | None]:
    """Convert all values. Raises ConnectError if a value has no JSON."""
    values, schema = batch.values, batch.value_schema
    writer = payloads(defaults=settings.value_defaults)
    texts = texts_of(values, schema, writer) if settings.as_text else writer.texts(values, schema)
    return [None if value is None else text for value, text in zip(values, texts, strict=True)]


def _urls(
    batch: SinkBatch, settings: HttpSettings, texts: Sequence[bytes | None], refuse: Refuse
) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the place, and method with URL, of each record to send."""
    template = settings.url
    variables = {"topic": quote(batch.topic, safe="", errors="replace")}
    fixed = (settings.method, template.filled({**variables, "key": ""}))
    values = batch.values
    for place, text in enumerate(texts):
        method = settings.method
        if text is None:
            if values[place] is not None or settings.on_null == "ignore":
                continue  # already refused, or nothing to send
            if settings.on_null == "fail":
                why = "the record has no value, and behavior.on.null.values is fail"
                refuse(batch, place, DataError(why))
                continue
            method = "DELETE"
        if not template.by_key:
            yield place, fixed
            continue
        try:
            variables["key"] = _key_text(batch, place, settings)
        except ConnectError as error:
            refuse(batch, place, error)
            continue
        yield place, (method, template.filled(variables))


def _key_text(batch: SinkBatch, place: int, settings: HttpSettings) -> str:
    """Return a key as URL text. Raises DataError for one that cannot be in a URL."""
    key = batch.keys[place]
    if key is None:
        raise DataError("the record has no key, and http.url has ${key} in it")
    data = text_of(key, batch.key_schema, payloads(defaults=settings.key_defaults))
    if data in _NO_PLACE:
        raise DataError(f"the key '{data.decode()}' cannot be part of a URL")
    return quote(data, safe="")
