"""Recorder of `golden/jsonpath.jsonl`: the matches of Jayway's JsonPath 2.9.0, which Confluent's Filter uses.

    python -m libs.core.tests.connect.transforms.jsonpath.record WORK

Maven fetches it into the folder WORK. A line is a condition and, for each of `VALUES`, the number of matches, or the
class of the error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

from libs.core.tests.connect.transforms.jsonpath.cases import CONDITIONS, VALUES

OUT = Path(__file__).parents[2] / "golden/jsonpath.jsonl"
_HERE = Path(__file__).parent


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path, help="a folder for what Maven fetches")
    work: Path = parser.parse_args().work
    work.mkdir(exist_ok=True)
    (work / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies><dependency>"
        "<groupId>com.jayway.jsonpath</groupId><artifactId>json-path</artifactId><version>2.9.0</version>"
        "</dependency></dependencies></project>"
    )
    copy = ["mvn", "-q", "-B", "-f", str(work / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*copy, f"-DoutputDirectory={work / 'jars'}"], check=True)
    path = ":".join(str(jar) for jar in sorted((work / "jars").glob("*.jar")))
    subprocess.run(["javac", "-cp", path, "-d", str(work), str(_HERE / "RecordJsonPath.java")], check=True)
    given = "".join(f"{condition}\n{json.dumps(value)}\n" for condition in CONDITIONS for value in VALUES)
    java = ["java", "-cp", f"{work}:{path}", "RecordJsonPath"]
    told = subprocess.run(java, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = [json.loads(line.removeprefix("FOUND ")) for line in told.splitlines() if line.startswith("FOUND ")]
    count = len(VALUES)
    lines = [
        json.dumps({"condition": condition, "found": found[at * count : (at + 1) * count]})
        for at, condition in enumerate(CONDITIONS)
    ]
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
