"""Findings about services as processes: the condition of stores, the leader, versions, clocks and disks.

Owns the judgement and its limits, not the queries (`examination`). Invariant: a service that did not answer has one
finding, and is left out of every comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from herdmesh.cli.display.views import Json
from herdmesh.cli.doctor.codes import CODES, finding
from herdmesh.cli.doctor.machine import disk_findings
from herdmesh.devstack.layout import StackState

#: Difference from this machine's clock, in seconds, above which a clock is wrong.
SKEW_MAX_S: Final = 2.0
_STORE_CODES: Final = {"FAILED": "STORE_FAILED"}


def store_findings(replica: Json) -> Iterator[Json]:
    """The findings of one replica of a store."""
    part, name, condition = replica["store"], replica["address"], replica["condition"]
    if condition != "HEALTHY":
        since = f" (since {replica['since']})" if replica["since"] else ""
        code = _STORE_CODES.get(condition, condition)
        # a condition of a newer release
        known = code if code in CODES else "STORE_FAILED"
        prefix = "" if known == code else f"{condition}: "
        yield finding(known, part, name, f"{prefix}{replica['message']}{since}")
    if replica["undecodable_count"]:
        message = f"{replica['undecodable_count']} records of {replica['topic']} cannot be decoded"
        yield finding("UNDECODABLE", part, name, message)


def herder_findings(herder: Json) -> Iterator[Json]:
    """The finding of a mesh without an answering leader."""
    match herder["state"]:
        case "LEADS":
            return
        case "UNREACHABLE" | "WRONG_ADDRESS":
            yield finding(herder["state"], "herder", herder["address"], herder["message"])
        case _:
            yield finding("NO_LEADER", "herder", herder["address"], herder["message"])


def process_findings(worker: Json) -> Iterator[Json]:
    """The findings of a worker's process. A worker of an earlier release does not answer this query."""
    if not worker["trouble"]:
        yield from disk_findings(f"worker {worker['name']}", worker["disks"])
    elif worker["reason"] != "NOT_BUILT" and worker["state"] != "LOST":
        message = f"it does not answer at {worker['address']}: {worker['trouble']}"
        yield finding("WORKER_UNREACHABLE", "worker", worker["name"], message)


def skew_s(reply: Any, began_s: float, ended_s: float) -> float | None:
    """How far the sender's clock is ahead of this machine's, in seconds; 0 within the time that the call took; None for
    a reply without a time (an earlier release).
    """
    if not reply.HasField("report_time"):
        return None
    at_s: float = reply.report_time.ToNanoseconds() / 1e9
    if at_s < began_s:
        return at_s - began_s
    return max(0.0, at_s - ended_s)


def skew_findings(answers: Sequence[Json], own_version: str) -> Iterator[Json]:
    """The findings about versions and clocks of the services that answered."""
    versions: dict[str, list[str]] = {own_version: ["this command"]} if own_version else {}
    for one in answers:
        if one.get("version"):
            versions.setdefault(one["version"], []).append(f"{one['part']} {one['name']}")
    if len(versions) > 1:
        told = "; ".join(f"{release}: {', '.join(names)}" for release, names in sorted(versions.items()))
        yield finding("VERSION_SKEW", "mesh", "-", told)
    for one in answers:
        skew = one.get("skew_s")
        if skew is not None and abs(skew) > SKEW_MAX_S:
            side = "ahead of" if skew > 0 else "behind"
            message = f"its clock is {abs(skew):.1f} s {side} this machine's"
            yield finding("CLOCK_SKEW", one["part"], one["name"], message)


def cluster_findings(answers: Sequence[Json], kafka: Json) -> Iterator[Json]:
    """The finding when services use different Kafka clusters."""
    clusters: dict[str, list[str]] = {}
    for one in (*answers, kafka):
        if one.get("cluster_id"):
            clusters.setdefault(one["cluster_id"], []).append(f"{one['part']} {one['name']}")
    if len(clusters) > 1:
        told = "; ".join(f"{cluster}: {', '.join(names)}" for cluster, names in sorted(clusters.items()))
        yield finding("KAFKA_CLUSTERS_DIFFER", "kafka", "-", told)


def checks(herder: Json, workers: Sequence[Json], kafka: Json, stack: StackState | None) -> tuple[list[str], list[str]]:
    """What was checked besides the stores, and what was not, each with its reason; short texts for people."""
    checked: list[str] = []
    unchecked: list[str] = []
    if herder["state"] == "LEADS":
        tasks = sum(len(one["tasks"]) for one in herder["connectors"])
        counts = (len(herder["connectors"]), "connector"), (tasks, "task"), (len(herder["workers"]), "worker")
        checked += [f"{count} {noun}" if count == 1 else f"{count} {noun}s" for count, noun in counts]
    else:
        unchecked.append("connectors, tasks and workers (no herder leads)")
    if kafka["name"]:
        checked.append(f"Kafka at {kafka['name']}")
    else:
        unchecked.append("Kafka from here (--bootstrap-servers names it)")
    if stack is not None and stack.supervisor is not None:
        checked.append("the supervisor")
    checked += ["versions", "clocks", "disks"]
    silent = [one["name"] for one in workers if one["trouble"]]
    if silent:
        unchecked.append(f"version, clock and disks of {', '.join(silent)}")
    return checked, unchecked
