"""Alert rules of deploy/prometheus: they use series that exist, each has a test, and Prometheus' own checker agrees."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from services.worker.tests.metrics.metrics_page import ALERTS, alert_rules, labels_by_name
from tests.support import promtool

TESTS = ALERTS.with_name("herdmesh-alerts.test.yml")
#: Labels that no series has itself: of Prometheus, and of values that rules compute.
_GIVEN = {"instance", "job"}
_SERIES = re.compile(r"\b((?:herdmesh|kafka_connect)_[a-z_]+)(?:\{([^}]*)\})?")


def fired_in_tests() -> set[str]:
    """Alerts that a test expects with their labels and annotations."""
    tests: Any = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    return {one["alertname"] for test in tests for one in test["alert_rule_test"] if one.get("exp_alerts")}


def test_rules_use_series_and_labels_that_exist() -> None:
    known = labels_by_name()
    for rule in alert_rules():
        used = _SERIES.findall(rule["expr"])
        assert used, rule["alert"]
        for name, matchers in used:
            assert name in known, f"{rule['alert']}: no service has {name}"
            for label in re.findall(r"([a-z_]+)\s*[=!]", matchers):
                assert label in known[name], f"{rule['alert']}: {name} has no label {label}"
        kept = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))))
        assert kept <= _GIVEN | {label for name, _ in used for label in known[name]}, rule["alert"]


def test_each_rule_has_a_severity_a_summary_a_next_step_and_a_test() -> None:
    for rule in alert_rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        shown = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
        kept = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"by \(([^)]*)\)", rule["expr"]))))
        assert shown <= kept, f"{rule['alert']} shows labels that its expression drops"
    assert {rule["alert"] for rule in alert_rules()} == fired_in_tests()


@pytest.mark.parametrize("arguments", [("check", "rules", ALERTS.name), ("test", "rules", TESTS.name)])
def test_promtool_accepts_the_rules_and_their_tests_pass(arguments: tuple[str, ...]) -> None:
    status, output = promtool.run(*arguments, cwd=ALERTS.parent)
    assert status == 0, output
    assert "SUCCESS" in output
