"""The producer's series on the Prometheus page: names, labels, histogram, and their removal."""

from __future__ import annotations

from prometheus_client import REGISTRY, generate_latest

from herdmesh.rpc.monitoring import telemetry
from herdmesh.rpc.monitoring.telemetry import Buckets, Family, Kind


def _lines(containing: str) -> list[str]:
    text = generate_latest(REGISTRY).decode()
    return [line for line in text.splitlines() if containing in line and not line.startswith("#")]


def test_a_producers_series_are_on_the_page_as_long_as_it_reports_them() -> None:
    points = [({"connector": "a", "task": "0"}, 3.0), ({"connector": "b", "task": "0"}, 4.0)]

    def families() -> list[Family]:
        return [
            Family("made_up_reads_total", Kind.COUNTER, "Reads.", points),
            Family("made_up_age_ms", Kind.HISTOGRAM, "Ages.", [({"task": "0"}, Buckets((1, 0, 2), (5, 10), 40.0))]),
            Family("made_up_lag", Kind.GAUGE, "Lag.", []),
        ]

    remove = telemetry.add_producer("test", families)
    try:
        (first, second) = _lines("made_up_reads_total")
        assert first == 'made_up_reads_total{connector="a",task="0"} 3.0'
        points.pop()
        assert _lines("made_up_reads_total") == [first], f"{second} left"
        buckets = {line.split("le=")[1].split(",")[0].split("}")[0]: line for line in _lines("made_up_age_ms_bucket")}
        assert {le: line.rsplit(" ", 1)[1] for le, line in buckets.items()} == {
            '"5"': "1.0",
            '"10"': "1.0",
            '"+Inf"': "3.0",
        }
        assert _lines("made_up_age_ms_sum")[0].endswith(" 40.0")
        assert not _lines("made_up_lag")
    finally:
        remove()
    assert not _lines("made_up")
