"""Check of metric names and help texts, as `promtool check metrics` does it.

Owns the rules of Prometheus' linter (client_golang, prometheus/testutil/promlint/validations), and two of our own: a
help text can be read without the one before, and a unit occurs once in a name. Reads pages as Prometheus does; asks no
service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

BASE_UNITS = frozenset(
    ("amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "metres", "seconds", "volts")
)
_PREFIXES = (
    *("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto"),
    *("kilo", "kibi", "mega", "mibi", "giga", "gibi", "tera", "tebi", "peta", "pebi"),
)
_OTHER_UNITS = frozenset(
    (
        *("minutes", "hours", "days", "weeks", "fahrenheit", "inches", "feet", "yards", "miles", "bits", "tonnes"),
        *("ounces", "pounds", "calories"),
        *(prefix + unit for prefix in _PREFIXES for unit in BASE_UNITS),
    )
)
_ABBREVIATIONS = frozenset(("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"))
_TYPES = ("counter", "gauge", "histogram", "summary")
#: Words that point to another text, at the beginning of a help text.
_DEPENDENT = re.compile(r"(these|those|this|their|they|its|it|of (these|those|them)|like|same|as)\b", re.IGNORECASE)
_CAMEL = re.compile(r"[a-z][A-Z]")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"')


@dataclass(slots=True)
class PageMetric:
    """A metric as a page shows it: samples are its series' names (`x_bucket`), labels all label names."""

    name: str
    type: str = "untyped"
    help: str = ""
    samples: set[str] = field(default_factory=set[str])
    labels: set[str] = field(default_factory=set[str])
    lines: int = 0


def metrics_of(page: str) -> list[PageMetric]:
    """The metrics of a page in Prometheus' text format. Raises ValueError for a sample of no declared metric, and for a
    metric that is declared twice.
    """
    found: dict[str, PageMetric] = {}
    current = PageMetric("")
    for line in page.splitlines():
        word, _, rest = line.partition(" ")
        if word == "#":
            keyword, name, text = [*rest.split(" ", 2), ""][:3]
            if keyword == "HELP":
                if name in found:
                    raise ValueError(f"{name} is declared twice")
                current = found[name] = PageMetric(name, help=text)
            elif keyword == "TYPE":
                current.type = text
        elif line:
            sample = re.split(r"[{ ]", line, maxsplit=1)[0]
            if sample.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") != current.name != sample:
                raise ValueError(f"{sample} belongs to no declared metric")
            current.samples.add(sample)
            current.labels |= {one[1] for one in _LABEL.finditer(line)}
            current.lines += 1
    return list(found.values())


def problems(metrics: Iterable[PageMetric]) -> list[str]:
    """One line for each violation."""
    return [f"{one.name}: {text}" for one in metrics for text in _problems(one)]


def _problems(metric: PageMetric) -> Iterator[str]:
    words = metric.name.split("_")
    if not metric.help:
        yield "no help text"
    elif _DEPENDENT.match(metric.help) is not None:
        yield f"the help text cannot be read alone: {metric.help}"
    elif not metric.help.rstrip().endswith((".", ")")) or not (metric.help[0].isupper() or metric.help[0].isdigit()):
        yield f"the help text is no sentence: {metric.help}"
    if metric.type == "counter" and words[-1] != "total":
        yield "a counter should have the suffix _total"
    if metric.type != "counter" and words[-1] == "total":
        yield "only counters should have the suffix _total"
    if metric.type != "histogram" and words[-1] == "bucket":
        yield "only histograms should have the suffix _bucket"
    if metric.type not in ("histogram", "summary") and words[-1] in ("count", "sum"):
        yield f"only histograms and summaries should have the suffix _{words[-1]}"
    if metric.type not in ("histogram", "summary") and {"le", "quantile"} & metric.labels:
        yield "only histograms and summaries should have the labels le and quantile"
    if metric.type in _TYPES and metric.type in words:
        yield f"the name should not include the type {metric.type}"
    for unit in sorted(_OTHER_UNITS.intersection(words)):
        yield f"use a base unit instead of {unit}"
    for unit in sorted(_ABBREVIATIONS.intersection(words)):
        yield f"the name should not contain the abbreviated unit {unit}"
    for unit in sorted(BASE_UNITS):
        if words.count(unit) > 1:
            yield f"the unit {unit} occurs more than once"
    if ":" in metric.name:
        yield "colons are for recording rules"
    yield from (f"camelCase in {name}" for name in sorted({metric.name, *metric.labels}) if _CAMEL.search(name))
