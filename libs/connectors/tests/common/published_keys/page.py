"""Generator of docs/reference/known-keys.md: the effect here of each key that the Java connectors with our names
define, and of each property of a Connect worker. The texts come from validation itself.

    python -m libs.connectors.tests.common.published_keys.page
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from herdmesh.connect.validation.worker_keys import NOT_READ, READ, WORKER_KEYS
from herdmesh.connectors.common.known_keys import published

PAGE = Path(__file__).parents[5] / "docs/reference/known-keys.md"
Said = Callable[[Mapping[str, str]], tuple[dict[str, str], dict[str, list[str]]]]
#: By definition: the owner of the keys, and our connector for its class names.
TITLES: Mapping[str, tuple[str, str]] = {
    "jdbc-source": ("JDBC source (Confluent, Aiven)", "PostgresSource"),
    "jdbc-sink": ("JDBC sink (Confluent, Aiven)", "PostgresSink"),
    "debezium-jdbc": ("Debezium's JDBC sink", "PostgresSink, which does not answer to its name"),
    "debezium-postgres": ("Debezium's PostgreSQL connector", "PostgresCdcSource"),
    "s3-sink": ("S3 sink (Confluent)", "S3Sink"),
    "hdfs-sink": ("HDFS sink (Confluent)", "HdfsSink"),
    "http-sink": ("HTTP sinks (Confluent, Aiven)", "HttpSink"),
    "datagen": ("datagen (Confluent)", "Datagen"),
    "file-source": ("FileStreamSource", "FileStreamSource"),
    "file-sink": ("FileStreamSink", "FileStreamSink"),
    "mirror-source": ("MirrorSourceConnector", "MirrorSource"),
    "mirror-checkpoint": ("MirrorCheckpointConnector", "MirrorCheckpoint"),
    "mirror-heartbeat": ("MirrorHeartbeatConnector", "MirrorHeartbeat"),
}
_NOT_SUPPORTED = "not supported"
_HEAD = """\
# Known keys

The effect of each key of the Java connectors that have a counterpart here, and of each property of a Connect worker:
`works`, `no effect here` or `not supported`, with the key or value to write instead. `herd validate`, `create`,
`apply` and `herd describe connector` give the same answers for a config, for all its keys at once. A key that is
neither in these tables nor a key of the connector here is reported as unknown, with the nearest known key. `works`
means that the key is read; the connector's page lists the supported values. A **not supported** in bold is refused,
because a run without the key would write other data; every other key only causes a warning, and the connector runs.

The lists of keys come from published sources: by reflection from Maven's artifacts (Debezium, MirrorMaker,
FileStream), from the constants of public sources (JDBC, S3, HDFS, datagen, Aiven's HTTP sink), and for Confluent's
HTTP sink from its reference. This page is generated from validation by `python -m
libs.connectors.tests.common.published_keys.page`, and a test compares the two.
"""


def outcome(key: str, base: Mapping[str, str], said: Said) -> tuple[str, str]:
    """Return (word, explanation) for a key that is added to a config."""
    if key in base:
        return "works", ""
    warnings, errors = said({**base, key: "1"})
    if key in warnings:
        text = warnings[key].partition(": ")[2] or warnings[key]
        why, _, fix = text.rpartition(" (")
        fix = fix.removesuffix(")")
        more = f"{why}; {fix}" if fix != "leave it out" and fix not in why else why
        if _NOT_SUPPORTED in text:
            return _NOT_SUPPORTED, "" if why.startswith("this setting of ") else more
        return "no effect here", more
    refused = [one for one in errors.get(key, ()) if _NOT_SUPPORTED in one or "not supported" in one]
    if refused:
        text = refused[0].removeprefix(f"Invalid value 1 for configuration {key}: ").removeprefix(f"{key} is ")
        text = text.removeprefix("not supported: ").removeprefix("not supported here: ")
        return f"**{_NOT_SUPPORTED}**", "" if text.startswith("this is not supported") else text
    return "works", ""


def row(definition: str, key: str, base: Mapping[str, str], said: Said) -> str:
    """Return the line of a key. Raises AssertionError for a key that validation calls unknown."""
    word, more = outcome(key, base, said)
    assert "did you mean" not in more, f"{definition}: {key} is called unknown"
    assert "no such setting" not in more, f"{definition}: {key} is called unknown"
    return f"| `{key.replace('|', '&#124;')}` | {word} | {more.replace('|', '&#124;')} |"


def page(row_of: Callable[[str, str], str]) -> str:
    """Return the page's text; `row_of` returns the line of a definition's key."""
    lines = [_HEAD]
    for name, (title, here) in TITLES.items():
        lines += [f"## {title}", "", f"Here: {here}.", "", "| Key | | |", "|---|---|---|"]
        lines += [*(row_of(name, key) for key in sorted(published()[name])), ""]
    lines += ["## Properties of a worker", ""]
    lines += [
        "Of a mesh's worker (`HERDMESH_WORKER_PROPERTIES`); `herd run` reads more: docs/how-to/standalone.md.",
        "",
    ]
    lines += ["| Property | | |", "|---|---|---|"]
    for key in sorted(WORKER_KEYS):
        if key in READ:
            lines.append(f"| `{key}` | works | |")
        else:
            why, fix = NOT_READ[key]
            more = f"{why}; {fix}" if fix != "leave it out" else why
            lines.append(f"| `{key}` | no effect here | {more} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from libs.connectors.tests.common.test_known_keys import CONFIGS
    from libs.connectors.tests.common.test_known_keys import said as of_validation

    PAGE.write_text(page(lambda name, key: row(name, key, CONFIGS[name], of_validation)), encoding="utf-8")
