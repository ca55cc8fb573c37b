"""Settings of an operator reach the rules of the state."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from herdmesh.herder.settings import HerderSettings
from herdmesh.herder.state.model import Rules


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("session_timeout_ms", "session_timeout_ms"),
        ("stream_grace_ms", "stream_grace_ms"),
        ("scheduled_rebalance_max_delay_ms", "rebalance_delay_ms"),
        ("balance_delay_ms", "balance_delay_ms"),
        ("stop_timeout_ms", "stop_timeout_ms"),
        ("inter_worker_key_ttl_ms", "session_key_ttl_ms"),
    ],
)
def test_each_time_setting_becomes_a_rule(setting: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"HERDMESH_{setting.upper()}", "4321")
    assert getattr(HerderSettings().rules("h1"), rule) == 4_321
    monkeypatch.undo()
    assert getattr(HerderSettings().rules("h1"), rule) == getattr(Rules(), rule), "the two defaults are the same"


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [("balance_enabled", "false", False), ("balance_moves_max", "3", 3), ("balance_threshold_percent", "20", 20)],
)
def test_the_bounds_of_a_balance_become_rules(
    setting: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"HERDMESH_{setting.upper()}", text)
    assert getattr(HerderSettings().rules("h1"), setting) == value
    monkeypatch.undo()
    assert getattr(HerderSettings().rules("h1"), setting) == getattr(Rules(), setting)


def test_version_prints_the_release(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        HerderSettings.load(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"herdmesh.herder {version('herdmesh-herder')}\n"
