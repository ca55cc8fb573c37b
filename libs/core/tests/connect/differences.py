"""Unavoidable differences from Java, by kind: the golden vectors concerned, our result instead, and the reason.

Owns the kinds and the page generated from them: `python -m libs.core.tests.connect.differences` writes
docs/reference/differences.md, a test compares. Owns no comparison: the golden tests read the expected result of a
vector here.

Invariant: a vector of no kind is compared with Java's result; a vector of a kind, with the kind's result.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from libs.core.tests.connect.golden_vectors import Vector, python_text, vectors
from tests.support import golden, mirror_differences, validation_differences

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "differences.md"
_SPEC = "org.apache.kafka.connect.transforms.InsertField$InsertionSpec@<hash>"
_NO_TIME = "Timestamp missing on record: "


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of difference."""

    title: str
    why: str
    meets: Callable[[Vector], bool]


def _message(vector: Vector) -> str:
    error = cast("Vector", vector.get("error") or {})
    return error.get("message") or ""


def _is_windowed(vector: Vector) -> bool:
    """Whether the vector's value is a window of a buffer of which Java wrote more."""
    given, output = vector["input"], vector.get("output")
    if vector.get("direction") != "fromConnectData" or not given or not output or "b64" not in output:
        return False
    if "$bytebuffer" not in (given["value"] if isinstance(given["value"], dict) else ()):
        return False
    payload = _payload(vector)
    return isinstance(payload, str) and payload != given["value"]["$bytebuffer"]


def _payload(vector: Vector) -> Any:
    """The output of JsonConverter without its envelope."""
    if not vector["converter"].endswith("JsonConverter"):
        return None
    written: Any = json.loads(vector["output"]["text"])
    return cast("Vector", written)["payload"] if isinstance(written, dict) else written


KINDS = (
    Kind(
        "InsertField names the field that has no value",
        "Java prints an object's identity (`InsertionSpec@1b2c3d`), which differs in every run and has no use",
        lambda vector: _SPEC in _message(vector),
    ),
    Kind(
        "TimestampRouter does not print the whole record when it has no timestamp",
        "key and value are not decoded for a transformation that looks at the topic only; the error says topic and "
        "partition, and the dead letter or log has the record",
        lambda vector: _message(vector).startswith(_NO_TIME),
    ),
    Kind(
        "JsonConverter writes the bytes of a buffer, not of its whole array",
        "a Java ByteBuffer can be a window on a larger array, and Java's converter writes the whole array; Python's "
        "bytes are never a window",
        _is_windowed,
    ),
)


def wanted_message(vector: Vector) -> str:
    """The expected error text of a vector."""
    message = python_text(_message(vector))
    if _SPEC in message:
        field: str = vector["config"]["static.field"]
        return message.replace(_SPEC, field[:-1] if field.endswith(("!", "?")) else field)
    if message.startswith(_NO_TIME):
        given = vector["input"]
        partition = "null" if given["partition"] is None else given["partition"]
        return f"{_NO_TIME}ConnectRecord{{topic='{given['topic']}', kafkaPartition={partition}}}"
    return message


def wanted_bytes(vector: Vector) -> bytes | None:
    """The expected bytes of a vector that writes."""
    output = vector["output"]
    data = None if output is None else base64.b64decode(output["b64"])
    if data is None or not _is_windowed(vector):
        return data
    return data.replace(
        json.dumps(_payload(vector)).encode(), json.dumps(vector["input"]["value"]["$bytebuffer"]).encode()
    )


def page() -> str:
    """The text of docs/reference/differences.md."""
    files = {name: vectors(f"{name}.jsonl") for name in ("transforms", "converters")}
    count = sum(map(len, files.values()))
    found = [[one["id"] for each in files.values() for one in each if kind.meets(one)] for kind in KINDS]
    lines = [
        "# Differences from Java",
        "",
        "Written by `python -m libs.core.tests.connect.differences` from the golden vectors; a test compares.",
        "",
        f"Of {count:,} vectors of converters and transformations recorded from Kafka Connect 4.3.1,",
        f"{count - sum(map(len, found)):,} are met exactly and {sum(map(len, found))} as listed here. None is skipped.",
        "",
        "This is the exact list. To move a cluster, read [Migrate from Kafka",
        "Connect](../how-to/migrate-from-kafka-connect.md) first.",
        "",
        *_UNSEEN,
        "",
        "## Recorded results that differ",
    ]
    for kind, ids in zip(KINDS, found, strict=True):
        lines += _section(kind.title, kind.why, ids)
    lines += [*_mirror(), *_validation(), ""]
    return "\n".join(lines)


def _section(title: str, why: str, ids: list[str]) -> list[str]:
    listed = ", ".join(f"`{one}`" for one in sorted(ids))
    return [
        "",
        f"### {title}",
        "",
        f"Why: {why}.",
        "",
        f"{len(ids)} recorded {'result' if len(ids) == 1 else 'results'}: {listed}",
    ]


def _mirror() -> list[str]:
    """Definitions and answers of the mirror's connectors that differ from Java's."""
    definitions = [one for one in golden.own_lines("configdef.jsonl") if one["owner"] in mirror_differences.NAMES]
    lines: list[str] = []
    for kind in mirror_differences.KINDS:
        lines += _section(kind.title, kind.why, [one["id"] for one in definitions if kind.meets(one)])
    answers = [one["id"] for one in golden.own_lines("validate.jsonl") if mirror_differences.is_asked_for(one)]
    return lines + _section("Validation of a mirror", mirror_differences.ANSWERS_WHY, answers)


def _validation() -> list[str]:
    """Definitions without a counterpart here, and requests that are answered differently from Connect."""
    definitions, lines = golden.own_lines("configdef.jsonl"), list[str]()
    for title, why, owners in validation_differences.WITHOUT_COUNTERPART:
        lines += _section(title, why, [one["id"] for one in definitions if one["owner"] in owners])
    requests = golden.own_lines("validate.jsonl")
    for title, why, meets in validation_differences.REQUESTS:
        lines += _section(title, why, [one["id"] for one in requests if meets(one)])
    return lines


_UNSEEN = """\
## Differences that no vector covers

- Confluent's transformations follow its documentation, not recordings: its classes are not published openly. The texts
  of their errors are ours. ExtractTopic takes only paths to one field, and TopicRegexRouter Java's regular expressions,
  not those of RE2/J.
- A condition of Filter whose field is missing or null does not match, whatever the rest of the condition is, unless the
  field is compared with null or tested for absence. An index beyond a list is a missing field.
- ByLogicalTableRouter names a schema after the topic its record goes to; Debezium remembers the first topic of a
  schema, and names it so for all others.
- EventRouter names a value with columns beside the payload after the topic of its own record; Debezium remembers the
  first topic of a schema or a version. A payload that cannot be expanded as a whole (an array, elements of several
  types, numbers beyond 64 bits) stays unexpanded text; Debezium gives some of them the schema it had begun, which no
  converter accepts. Fields that `field.name.adjustment.mode` renames keep their values, which Debezium loses. Objects
  within an array that differ make one schema in the order of the array; Debezium's order is that of a hash. A placement
  that does not exist is refused by the validation, not by the first record.
- ExtractNewRecordState accepts the delete settings of Debezium before 3.0 (`drop.tombstones`, `delete.handling.mode`)
  with their old effect; Debezium 3 ignores them silently. A setting with a wrong value is named in the error, where
  Debezium prints "Unable to validate config."
- Texts of the JDK's own exceptions (null pointers, casts, indexes) are compared by class only.
- `SimpleDateFormat` keeps a zone name it has parsed for all later records; ours applies it to that record alone.
  Negative and overflowing years, and week years under summer zones, can differ.
- Regular expressions run in Python's `regex`: features that it lacks (`\\p{javaMirrored}`, `\\b{g}`, non-ASCII ranges
  under `(?iu)`) are refused by name; unbounded look-behind, which Java refuses, is accepted.
- In Python 1, 1.0 and True are one key of a map. ReplaceField and MaskField accept schemaless maps with keys that are
  not texts, where Java's cast fails.
- A schemaless map keeps the order of its members, Java's is a hash map's: the text of a map can have another order, and
  of two errors in one map the other may be reported. If ReplaceField renames two fields to one name, Java's last
  counts.
- A struct within a struct, list or map that lacks a required field, or a value of another class than its schema's, is
  refused by the converter, or where the field is read; Java's transformation refuses it when it copies the field. A
  converter gives no such value; a source connector that does not call `Struct.validate` can.
- A schemaless header that holds a struct has no schema unless `Headers.add` made it; Java gives it the struct's.
- A record whose timestamp is before 1970 (below -1) is put to a sink; Java ends the task ("Invalid record timestamp"),
  whatever `errors.tolerance` is, and again after each restart. Checking each record's timestamp would cost 79 ns, 3 %
  of a copy; a source's record with such a timestamp ends its task here too.
- A sink's task does not get the type of a record's timestamp (`timestampType`): a topic's `message.timestamp.type` has
  it.
- `converter.encoding`: characters that the encoding lacks, and malformed bytes, are replaced as in Python, which equals
  Java for UTF-8, ISO-8859-1 and US-ASCII. Names that only Python knows are accepted, names that only Java knows are
  refused; UTF-32 has a byte order mark.
- A dead letter that Kafka refuses fails the task, and no offset past its record is committed; Java logs the refusal,
  counts it and commits, so that the record is lost. A dead letter that is too large is cut first, and has the header
  `__herdmesh.cut`.
- JSON nested deeper than about 3,000 levels cannot be written.
- File, HTTP and text sinks write values without a schema that JsonConverter refuses (BigDecimal, Date, a Struct in a
  map) as they do with one, and integers beyond 64 bits with all their digits (docs/reference/values.md).
- A sink fails only the record of a batch that it cannot write, and writes the others; Connect's own sinks, and most of
  Confluent's, fail the task for it, whatever `errors.tolerance` is.
- Records of a schema that returns continue in their Parquet file; Confluent's begin another file at each change
  (`schema.compatibility=NONE`). `BACKWARD`, `FORWARD` and `FULL`, which project records, have no effect here;
  validation warns.
- ProtobufConverter reads a missing message in a map as null; Confluent's fails on a Decimal or Date there, and makes an
  empty struct or 1970 of others (docs/reference/schema-registry.md).
- Bytes that no step reads or edits are not decoded, so malformed schemaless JSON that no step reads passes where Java
  fails the record, whatever the tolerance: a record costs only what its chain needs. A transformation that reads the
  value triggers the decoding, and the error is Java's.
- Every call removes the blanks around a connector's name, as Java's POST does; Java's PUT creates another connector. A
  connector that Java created with blanks is addressed by its exact name.
- An update or a patch whose result equals the stored config changes nothing: no record, no restart, and the response
  says `unchanged`. Java writes the config again and restarts the connector; here `herd restart` does that.
- A connector's name has at most 1,000 bytes (UTF-8): it is part of ids that Kafka and gRPC bound.
- ByteArrayConverter writes all of a value's bytes. A Java ByteBuffer that was read to its end has a position, which
  Java's converter resets or not, depending on the release; Python's bytes have none.
- A mirror accepts `exactly.once.support=required`: ours is always exactly once. Java's MirrorSourceConnector accepts it
  only if the consumer reads committed records, and refuses it otherwise (docs/connectors/mirror.md).
- A validation never shows the value from a config provider: `value` is the reference as it was written. Java shows the
  provider's value (docs/reference/guarantees.md).
- A column's large value that an update did not touch is a placeholder for every type (docs/connectors/postgres-cdc.md):
  numbers, bits and arrays too, where Debezium has one for texts, `bytea`, `hstore` and some arrays.
- A secret store is queried again after five minutes unless the store or a param sets another time, and connectors whose
  values changed are restarted. In Connect, Confluent's providers are never queried again, and jcustenborder's restart
  the connector each time (docs/reference/config-providers.md).
- A login to Vault, and a client of AWS or Azure, is created at the first look-up, not when the worker starts: an
  unreachable store does not keep a worker from starting.
- AWS_MSK_IAM logs in as OAUTHBEARER with the same signed request; MSK has both on the same port
  (docs/reference/client-settings.md).
- A setting of Confluent's `query.masked` is refused: a query is shown as it is written.
- Java's status store reads the status topic's partitions in any order, and a connector's tombstone also removes the
  tasks it has read by then, including younger ones; ours keeps statuses written after the tombstone. No writer can make
  Java's store show such a task in every order: a reader that reads the tombstone last ends without the task. Within one
  partition (`status.storage.partitions=1`) both show the same.
- Java's status store ignores an UNASSIGNED right after a RUNNING of no older generation. Ours writes a tombstone
  between them, so Java shows the UNASSIGNED too, unless it had read the RUNNING and the cleaner removed the tombstone
  before it read on: then it shows RUNNING until the task's next status. Ours shows what was written.
- Java's config store loses the rest of a poll that contains a commit or task count record whose number is not an
  integer, including connectors written after it ("Error polling" in its log); ours ignores that record alone.
- Java's snapshot of its config store ends with a ClassCastException when the config that tasks were made from has a
  value that is not a text (a number that another writer put there); ours returns the config.
- Java's snapshot cannot list the tasks of a connector whose commit record has a negative number
  (IllegalArgumentException); ours lists none.
- Java's safe put of a status fails with a NullPointerException on a status without a worker (`worker_id: null`); ours
  treats it as another worker's, so that the generation decides.
- A mirror's stored offset has `topic_id` beside MirrorMaker's `offset`. Java's connector ignores it and writes its own
  offset without it. When ours takes over again, such an offset counts for the topic that has the name then, as in Java.
  Offset syncs begin anew with a copy that was deleted and created again; Java continues as if it were the same.
- A mirror is refused with an empty `replication.policy.separator` and DefaultReplicationPolicy: alias and topic could
  not be separated then. Java accepts it, and detects cycles by the first letter.
- Validation takes properties over gRPC: there is no URL whose class could differ from `connector.class` (Java: 400),
  and `herd` refuses a file that it cannot read as a config before it sends anything.

## As in Java, although surprising

- Cast to string writes a date or time before 1970-01-02 as a time of day, as Java's `Values` does; TimestampConverter
  with a `format` writes the intended text.
- SimpleHeaderConverter reads the header `1::2` as 1; StringConverter as `header.converter` keeps the text.
- InsertHeader reads its `value.literal` as a value: "2.0" becomes 2.
- A schemaless JSON integer beyond 64 bits (9223372036854775808) wraps around and
  becomes negative; write it as text.""".splitlines()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
