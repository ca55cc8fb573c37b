"""Recorder of `golden/debezium.jsonl`: the results of Debezium's real transformations for `cases.py`, and their
definitions.

    python -m libs.core.tests.connect.transforms.debezium.record WORK

Maven fetches Debezium 3.6.1.Final into the folder WORK. Each line is a case with `output` or `error`, in the format of
`golden/transforms.jsonl`, or a `definition`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from libs.core.tests.connect.transforms.debezium.cases import CLASSES, cases

OUT = Path(__file__).parents[2] / "golden/debezium.jsonl"
_HERE = Path(__file__).parent
_ARTIFACTS = ("debezium-connector-postgres", "debezium-api", "debezium-embedded")
_VERSION = "3.6.1.Final"


def _jars(work: Path) -> list[Path]:
    folder = work / f"debezium-{_VERSION}"
    if not folder.exists():
        needs = "".join(
            f"<dependency><groupId>io.debezium</groupId><artifactId>{name}</artifactId>"
            f"<version>{_VERSION}</version></dependency>"
            for name in _ARTIFACTS
        )
        (work / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>x</groupId><artifactId>x</artifactId><version>1</version>"
            f"<dependencies>{needs}</dependencies></project>"
        )
        copy = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*copy, f"-DoutputDirectory={folder}"], check=True)
    return sorted(folder.glob("*.jar"))


def record(work: Path, lines: Iterable[object]) -> list[str]:
    """Results of the classes for these lines."""
    path = ":".join(map(str, _jars(work)))
    made = work / "classes"
    made.mkdir(exist_ok=True)
    subprocess.run(["javac", "-cp", path, "-d", str(made), str(_HERE / "RecordTransforms.java")], check=True)
    given = "".join(json.dumps(line) + "\n" for line in lines)
    java = ["java", "-cp", f"{made}:{path}", "RecordTransforms"]
    found = subprocess.run(java, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.removeprefix("VECTOR ") for line in found.splitlines() if line.startswith("VECTOR ")]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, help="a folder for what Maven fetches")
    work: Path = parser.parse_args().work
    work.mkdir(exist_ok=True)
    definitions = [{"id": f"d/{name}", "transform": name} for name in CLASSES]
    OUT.write_text("\n".join(record(work, [*definitions, *cases()])) + "\n")


if __name__ == "__main__":
    main()
