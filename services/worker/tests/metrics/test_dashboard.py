"""The Grafana dashboard of deploy/grafana: its expressions use series that exist, Prometheus parses them, and the file
has nothing of the instance that it was made on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from services.worker.tests.metrics.metrics_page import DASHBOARD, alert_rules, labels_by_name
from services.worker.tests.metrics.used_series import (
    GIVEN_LABELS,
    OF_THE_PROCESS,
    kept_labels,
    unknown_parts,
    used_series,
)
from tests.support import promtool

#: The names of Prometheus and of a dashboard's variables, in the values that Grafana would give them.
_VARIABLES = {"$__rate_interval": "2m", "$connector": "orders|users"}


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def panels() -> list[dict[str, Any]]:
    return [one for one in dashboard()["panels"] if one["type"] != "row"]


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target


def known_series() -> dict[str, set[str]]:
    return {**labels_by_name(), **{name: set() for name in OF_THE_PROCESS}}


def test_expressions_use_series_and_labels_that_exist() -> None:
    known = known_series()
    for title, target in targets():
        assert unknown_parts(target["expr"], known) == [], title
    queries = [one["definition"] for one in dashboard()["templating"]["list"] if one["type"] == "query"]
    for name, label in (re.fullmatch(r"label_values\((\w+), (\w+)\)", one).groups() for one in queries):  # pyright: ignore[reportOptionalMemberAccess]
        assert label in known[name]


def test_an_unknown_series_or_label_is_found() -> None:
    known = {"herdmesh_a_total": {"topic"}, "herdmesh_b_seconds": {"method"}}
    assert unknown_parts('sum by (topic) (rate(herdmesh_a_total{topic="x"}[5m]))', known) == []
    assert unknown_parts("sum by (le, method) (herdmesh_b_seconds_bucket)", known) == []
    assert unknown_parts('sum by (role) (herdmesh_a_total{connector="x"})', known) == [
        "herdmesh_a_total has no label connector",
        "no label role",
    ]
    assert unknown_parts("herdmesh_c", known) == ["no service has herdmesh_c"]
    assert unknown_parts("vector(0)", known) == ["it uses no series of ours"]


def test_a_legend_shows_only_labels_that_its_expression_keeps() -> None:
    known = known_series()
    for title, target in targets():
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        is_aggregated = re.search(r"\b(sum|max|count|histogram_quantile)\b", target["expr"]) is not None
        of_series = {label for one in used_series(target["expr"]) for label in known[one.name]} | GIVEN_LABELS
        assert shown <= (kept_labels(target["expr"]) if is_aggregated else of_series), f"{title}: {target['expr']}"


def test_every_alert_has_its_series_on_the_dashboard() -> None:
    shown = {one.name for _, target in targets() for one in used_series(target["expr"])}
    for rule in alert_rules():
        alerted = {one.name for one in used_series(rule["expr"])}
        assert alerted <= shown, f"{rule['alert']}: no panel shows {alerted - shown}"


def test_the_file_can_be_imported_anywhere() -> None:
    found = dashboard()
    assert found["id"] is None
    text = DASHBOARD.read_text(encoding="utf-8")
    assert set(re.findall(r'"uid": "([^"]*)"', text)) == {"${datasource}", "herdmesh"}
    variables = {one["name"]: one for one in found["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert all(one["current"] == {} for one in variables.values() if "current" in one), "no chosen value is kept"
    assert "__inputs" not in found


def test_each_panel_is_explained_and_in_its_own_place() -> None:
    rows = [one["title"] for one in dashboard()["panels"] if one["type"] == "row"]
    assert rows == ["Overview", "Records", "Errors and dead letters", "Workers", "Herders", "Stores"]
    taken: Counter[tuple[int, int]] = Counter()
    for one in dashboard()["panels"]:
        place = one["gridPos"]
        assert place["x"] + place["w"] <= 24, one["title"]
        taken.update(
            (place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])
        )
    assert max(taken.values()) == 1, "two panels overlap"
    assert len({one["id"] for one in dashboard()["panels"]}) == len(dashboard()["panels"])
    for one in panels():
        assert one["description"].endswith("."), one["title"]
        assert one["fieldConfig"]["defaults"]["unit"], one["title"]
        assert [target["refId"] for target in one["targets"]] == list("ABCDEF"[: len(one["targets"])])


def test_promtool_parses_every_expression(tmp_path: Path) -> None:
    rules: list[dict[str, str]] = []
    for number, (_, target) in enumerate(targets()):
        expression = target["expr"]
        for name, value in _VARIABLES.items():
            expression = expression.replace(name, value)
        assert "$" not in expression, expression
        rules.append({"record": f"panel:{number}", "expr": expression})
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    status, output = promtool.run("check", "rules", "rules.yml", cwd=tmp_path)
    assert status == 0, output
    assert f"{len(rules)} rules found" in output
