"""The series that rules and dashboards use: names, labels in matchers, labels that an expression keeps.

Owns the reading of PromQL expressions as far as our files use the language; their syntax is promtool's to check. The
series that exist are `metrics_page.labels_by_name`, which tests/e2e/test_pages.py compares with the real pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Labels that Prometheus adds to every series.
GIVEN_LABELS = frozenset({"instance", "job"})
#: Series of Prometheus' own client, without labels, on the page of every service.
OF_THE_PROCESS = frozenset({"process_cpu_seconds_total", "process_resident_memory_bytes"})
_SERIES = re.compile(r"\b((?:herdmesh|kafka_connect|process)_[a-z_]+)(?:\{([^}]*)\})?")
_AGGREGATION = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_SUFFIXES = ("_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class UsedSeries:
    """One selector of an expression: the metric's name, and the labels of its matchers."""

    name: str
    matched: frozenset[str]


def used_series(expression: str) -> Iterator[UsedSeries]:
    """The selectors of an expression. A series of a histogram has the histogram's name."""
    for name, matchers in _SERIES.findall(expression):
        histogram = next((name.removesuffix(one) for one in _SUFFIXES if name.endswith(one)), name)
        yield UsedSeries(histogram, frozenset(re.findall(r"([a-z_]+)\s*[=!]", matchers)))


def kept_labels(expression: str) -> set[str]:
    """The labels of `by (...)` and `on (...)`."""
    return set(re.findall(r"[a-z_]+", " ".join(_AGGREGATION.findall(expression))))


def unknown_parts(expression: str, known: dict[str, set[str]]) -> list[str]:
    """The names and labels of an expression that no service has; one line each."""
    series = list(used_series(expression))
    found = [f"no service has {one.name}" for one in series if one.name not in known]
    for one in series:
        lacking = one.matched - known.get(one.name, set()) - GIVEN_LABELS
        found += [f"{one.name} has no label {label}" for label in sorted(lacking)]
    of_series = {label for one in series for label in known.get(one.name, ())}
    found += [f"no label {label}" for label in sorted(kept_labels(expression) - of_series - GIVEN_LABELS - {"le"})]
    return found if series else ["it uses no series of ours"]
