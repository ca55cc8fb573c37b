"""Generator of `common/published_keys.json`: the keys of
the Java connectors whose class names Herdmesh accepts.

    python -m libs.connectors.tests.common.published_keys.generate WORK --sources SOURCES

Facts only: names of keys. Definitions come from Maven Central by reflection (Debezium) and
from Connect's own jars (MirrorMaker, FileStream), or, for a vendor that publishes none
there, from the constants of its public source: `SOURCES` has a clone `OWNER+NAME/repo` of
each of `_SOURCES`. Confluent's HTTP sink has neither; its keys are from its reference.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from herdmesh.devstack import jars

OUT = Path(__file__).parents[3] / "src/herdmesh/connectors/common/published_keys.json"
_HERE = Path(__file__).parent
_DEBEZIUM = "io.debezium.connector.postgresql.PostgresConnector"
_DEBEZIUM_FIELDS = "io.debezium.connector.postgresql.PostgresConnectorConfig"
_MIRROR = "org.apache.kafka:connect-mirror:4.3.1"
#: The definition's name here, artifact, class, classes with constants of Debezium's `Field`.
_MAVEN = (
    ("debezium-postgres", "io.debezium:debezium-connector-postgres:3.1.0.Final", _DEBEZIUM, _DEBEZIUM_FIELDS),
    ("debezium-postgres", "io.debezium:debezium-connector-postgres:1.9.7.Final", _DEBEZIUM, _DEBEZIUM_FIELDS),
    ("debezium-jdbc", "io.debezium:debezium-connector-jdbc:3.1.0.Final",
     "io.debezium.connector.jdbc.JdbcSinkConnector", ""),
    ("mirror-source", _MIRROR, "org.apache.kafka.connect.mirror.MirrorSourceConnector", ""),
    ("mirror-checkpoint", _MIRROR, "org.apache.kafka.connect.mirror.MirrorCheckpointConnector", ""),
    ("mirror-heartbeat", _MIRROR, "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector", ""),
)  # fmt: skip
_CONNECT = {
    "file-source": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "file-sink": "org.apache.kafka.connect.file.FileStreamSinkConnector",
}
_JDBC, _CLOUD = "confluentinc/kafka-connect-jdbc", "confluentinc/kafka-connect-storage-cloud"
_COMMON, _HDFS = "confluentinc/kafka-connect-storage-common", "confluentinc/kafka-connect-hdfs"
_AIVEN = "Aiven-Open/jdbc-connector-for-apache-kafka"
_STORAGE = ((_COMMON, "StorageCommonConfig"), (_COMMON, "StorageSinkConnectorConfig"), (_COMMON, "PartitionerConfig"))
#: By name: repository and class of the constants.
_SOURCES: dict[str, tuple[tuple[str, str], ...]] = {
    "jdbc-source": (
        (_JDBC, "JdbcSourceConnectorConfig"),
        (_AIVEN, "JdbcSourceConnectorConfig"),
        (_AIVEN, "JdbcConfig"),
    ),
    "jdbc-sink": ((_JDBC, "JdbcSinkConfig"), (_AIVEN, "JdbcSinkConfig"), (_AIVEN, "JdbcConfig")),
    "s3-sink": ((_CLOUD, "S3SinkConnectorConfig"), *_STORAGE),
    "hdfs-sink": ((_HDFS, "HdfsSinkConnectorConfig"), (_COMMON, "HiveConfig"), *_STORAGE),
    "datagen": (("confluentinc/kafka-connect-datagen", "DatagenConnectorConfig"),),
    "http-sink": (("Aiven-Open/http-connector-for-apache-kafka", "HttpSinkConfig"),),
}
_LICENSE = ("confluent.license", "confluent.topic", "confluent.topic.bootstrap.servers",
            "confluent.topic.replication.factor")  # fmt: skip
_DOCUMENTED = {
    "http-sink": (
        *("http.api.url", "request.method", "headers", "header.separator", "sensitive.headers", "request.body.format"),
        *("auth.type", "connection.user", "connection.password", "oauth2.token.url", "oauth2.client.id"),
        *("oauth2.client.secret", "oauth2.client.scope", "oauth2.client.auth.mode", "oauth2.token.property"),
        *("oauth2.client.headers", "oauth2.client.header.separator", "batch.key.pattern", "batch.max.size"),
        *("batch.prefix", "batch.suffix", "batch.separator", "batch.json.as.array", "regex.patterns"),
        *("regex.replacements", "regex.separator", "behavior.on.null.values", "behavior.on.error", "max.retries"),
        *("retry.backoff.ms", "retry.backoff.policy", "retry.on.status.codes", "report.errors.as"),
        *("http.connect.timeout.ms", "http.request.timeout.ms", "http.proxy.host", "http.proxy.port"),
        *("http.proxy.user", "http.proxy.password", "https.ssl.protocol", "https.ssl.enabled.protocols"),
        *("https.ssl.keystore.type", "https.ssl.keystore.location", "https.ssl.keystore.password"),
        *("https.ssl.key.password", "https.ssl.truststore.type", "https.ssl.truststore.location"),
        *(
            "https.ssl.truststore.password",
            "https.ssl.endpoint.identification.algorithm",
            "https.host.verifier.enabled",
        ),
        *("reporter.bootstrap.servers", "reporter.result.topic.name", "reporter.result.topic.replication.factor"),
        *("reporter.result.topic.partitions", "reporter.error.topic.name", "reporter.error.topic.replication.factor"),
        *("reporter.error.topic.partitions", "connection.disallow.private.ips", *_LICENSE),
    ),
    "s3-sink": _LICENSE,
    "hdfs-sink": ("hdfs.url", "hadoop.conf.dir", "hadoop.home", "hdfs.authentication.kerberos", *_LICENSE),
}
_CONSTANT = re.compile(r"static\s+final\s+String\s+(\w+)\s*=\s*((?:[^;\"]|\"(?:[^\"\\]|\\.)*\")*);", re.DOTALL)
_DEFINED = re.compile(r"\.\s*define\w*\(\s*(?:\w+\.)?(\w+|\"[^\"]+\")", re.DOTALL)
_NAMED = re.compile(r"(?:_CONFIG|_NAME|_KEY)$")
_KEY = re.compile(r"[a-z][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")


def constants_of(source: str) -> dict[str, str]:
    """Return the text of each constant that is composed of literals and other constants."""
    found: dict[str, str] = {}
    for name, expression in _CONSTANT.findall(source):
        parts = [part.strip() for part in re.split(r"\+", expression)]
        texts = [part[1:-1] if part.startswith('"') else found.get(part.rpartition(".")[2]) for part in parts]
        if None not in texts:
            found[name] = "".join(text for text in texts if text is not None)
    return found


def keys_in(source: str) -> set[str]:
    """Return the keys that a class of a ConfigDef defines:
    constants by their names, and arguments of `define`.
    """
    constants = constants_of(source)
    defined = {
        name.strip('"') if name.startswith('"') else constants.get(name, "") for name in _DEFINED.findall(source)
    }
    named = {text for name, text in constants.items() if _NAMED.search(name)}
    return {key for key in defined | named if _KEY.fullmatch(key)}


def _source_keys(sources: Path, repository: str, name: str) -> set[str]:
    clone = sources / repository.replace("/", "+") / "repo"
    files = _git(clone, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
    (path,) = (one for one in files if one.endswith(f"/{name}.java") and "/test/" not in one)
    return keys_in(_git(clone, "show", f"HEAD:{path}"))


def _git(clone: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *arguments], check=True, capture_output=True, text=True).stdout


def _reflected(work: Path, class_path: Iterable[Path], name: str, fields: str) -> set[str]:
    path = ":".join(map(str, class_path))
    made = work / "classes"
    made.mkdir(exist_ok=True)
    subprocess.run(["javac", "-cp", path, "-d", str(made), str(_HERE / "PublishedKeys.java")], check=True)
    command = ["java", f"-Dfields={fields}", "-cp", f"{made}:{path}", "PublishedKeys", name]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split("\t")[1] for line in lines if "\t" in line}


def _artifact(work: Path, artifact: str) -> list[Path]:
    """Return an artifact's jars and their dependencies, by Maven."""
    group, name, version = artifact.split(":")
    folder = work / f"{name}-{version}"
    if not folder.exists():
        needs = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        text = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
            <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
            <dependencies><dependency>{needs}</dependency></dependencies></project>"""
        (work / "pom.xml").write_text(text)
        copy = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*copy, f"-DoutputDirectory={folder}"], check=True)
    return sorted(folder.glob("*.jar"))


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, help="a folder for what Maven fetches")
    parser.add_argument(
        "--sources", type=Path, required=True, help="a folder with a clone OWNER+NAME/repo of each source"
    )
    given = parser.parse_args()
    given.work.mkdir(exist_ok=True)
    connect = [Path(one) for one in jars.ensure_jars("connect").split(":")]
    found: dict[str, set[str]] = {name: set(keys) for name, keys in _DOCUMENTED.items()}
    for name, artifact, java, fields in _MAVEN:
        found.setdefault(name, set()).update(
            _reflected(given.work, [*_artifact(given.work, artifact), *connect], java, fields)
        )
    for name, java in _CONNECT.items():
        found.setdefault(name, set()).update(_reflected(given.work, connect, java, ""))
    for name, places in _SOURCES.items():
        for repository, class_name in places:
            found.setdefault(name, set()).update(_source_keys(given.sources, repository, class_name))
    OUT.write_text(json.dumps({name: sorted(found[name]) for name in sorted(found)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
