"""Completion of names from the cluster, for the shells.

Owns the queries. A completion must never hang or print: a herder that does not answer within a second completes
nothing, and so does every error. Clients are imported when a name is completed, not when `herd` starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import typer

_TIMEOUT_S: Final = 1.0


def connectors(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of connectors, each with its type and state."""

    async def listed(client: Any) -> list[tuple[str, str]]:
        from herdmesh.cli.queries import fetch_connectors

        found = await fetch_connectors(client, full=False)
        return [(one["name"], f"{one['type']}, {one['connector']['state']}") for one in found]

    return _completed(context, incomplete, listed)


def tasks(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Tasks as `connector/0`, each with its state."""

    async def listed(client: Any) -> list[tuple[str, str]]:
        from herdmesh.cli.display.listing import tasks_of
        from herdmesh.cli.queries import fetch_connectors

        return [(one["name"], one["state"]) for one in tasks_of(await fetch_connectors(client, full=False))]

    return _completed(context, incomplete, listed)


def workers(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of workers, each with its state."""

    async def listed(client: Any) -> list[tuple[str, str]]:
        from herdmesh.cli.queries import fetch_workers

        return [(one["worker_id"], one["state"]) for one in await fetch_workers(client)]

    return _completed(context, incomplete, listed)


def plugins(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Aliases of plugins, each with its type; the class of one that has no alias."""

    async def listed(client: Any) -> list[tuple[str, str]]:
        from herdmesh.cli.queries import fetch_plugins

        found, _ = await fetch_plugins(client)
        return [((one["aliases"] or [one["class"]])[0], one["type"]) for one in found]

    return _completed(context, incomplete, listed)


def loggers(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names of loggers."""

    async def listed(client: Any) -> list[tuple[str, str]]:
        from herdmesh.cli.queries import fetch_loggers

        return sorted({(one["logger"], "") for one in await fetch_loggers(client)})

    return _completed(context, incomplete, listed)


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Names of topics, from Kafka."""
    from herdmesh.cli.errors import CommandError

    try:
        _select(context)
        from herdmesh.cli.kafka.access import find_kafka
        from herdmesh.cli.kafka.admin import KafkaAdmin
        from herdmesh.cli.kafka.topics import is_internal

        access = find_kafka(context.params.get("bootstrap_servers"), context.params.get("command_config"))
        found = KafkaAdmin(access, _TIMEOUT_S).metadata().topics
    except (CommandError, OSError, ValueError):
        return []
    return sorted(one for one in found if one.startswith(incomplete) and not (is_internal(one) and not incomplete))


def services(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the processes of `herd up` that have a log."""
    from herdmesh.devstack.layout import StackLayout

    logs = StackLayout(context.params.get("data") or Path(".herd")).logs()
    return sorted(one.stem for one in logs if one.stem.startswith(incomplete) and one.exists())


def examples(incomplete: str) -> list[tuple[str, str]]:
    """Names of the guided examples, with their titles."""
    from herdmesh.cli.example.page import examples as pages

    return [(one.name, one.title) for one in pages() if one.name.startswith(incomplete)]


def finding_codes(incomplete: str) -> list[str]:
    """Codes of the findings of `herd doctor`."""
    from herdmesh.cli.doctor import CODES

    return sorted(one for one in CODES if one.startswith(incomplete.upper()))


def _select(context: typer.Context) -> None:
    """Use the context that the line names: the options of the whole program are not evaluated for a completion."""
    from herdmesh.cli.mesh import contexts

    contexts.select(context.find_root().params.get("context") or "")


def _completed(
    context: typer.Context, incomplete: str, listed: Callable[[Any], Awaitable[list[tuple[str, str]]]]
) -> list[tuple[str, str]]:
    from herdmesh.cli.errors import CommandError
    from herdmesh.cli.mesh.client import HerderClient, find_herder

    _select(context)

    async def query() -> list[tuple[str, str]]:
        async with (
            asyncio.timeout(_TIMEOUT_S),
            HerderClient(find_herder(context.params.get("herder")), patience_s=0) as client,
        ):
            return await listed(client)

    try:
        found = asyncio.run(query())
    except (CommandError, OSError, TimeoutError, ValueError):
        return []
    return sorted(one for one in found if one[0].startswith(incomplete))
