"""Alert rules of deploy/prometheus: they use series that exist, each has a test, and Prometheus' own checker agrees."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from services.worker.tests.metrics.metrics_page import ALERTS, alert_rules, labels_by_name
from services.worker.tests.metrics.used_series import kept_labels, unknown_parts
from tests.support import promtool

TESTS = ALERTS.with_name("herdmesh-alerts.test.yml")


def fired_in_tests() -> set[str]:
    """Alerts that a test expects with their labels and annotations."""
    tests: Any = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    return {one["alertname"] for test in tests for one in test["alert_rule_test"] if one.get("exp_alerts")}


def test_rules_use_series_and_labels_that_exist() -> None:
    known = labels_by_name()
    for rule in alert_rules():
        assert unknown_parts(rule["expr"], known) == [], rule["alert"]


def test_each_rule_has_a_severity_a_summary_a_next_step_and_a_test() -> None:
    for rule in alert_rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        shown = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
        assert shown <= kept_labels(rule["expr"]), f"{rule['alert']} shows labels that its expression drops"
    assert {rule["alert"] for rule in alert_rules()} == fired_in_tests()


@pytest.mark.parametrize("arguments", [("check", "rules", ALERTS.name), ("test", "rules", TESTS.name)])
def test_promtool_accepts_the_rules_and_their_tests_pass(arguments: tuple[str, ...]) -> None:
    status, output = promtool.run(*arguments, cwd=ALERTS.parent)
    assert status == 0, output
    assert "SUCCESS" in output
