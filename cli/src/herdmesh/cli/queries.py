"""Queries of the mesh as plain documents: a herder's connectors, tasks, workers and plugins, a config store's history.

Owns the paging, and the errors that list what exists. Prints nothing, and selects nothing that the caller does not
name. Commands, completion and batches of changes use these queries; no query uses a command.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from typing import Any

from herdmesh.api.configstore.v1 import config_read_service_pb2 as store
from herdmesh.api.configstore.v1.config_read_service_pb2_grpc import ConfigReadServiceStub
from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.api.herder.v1 import config_messages_pb2 as messages
from herdmesh.cli.display import listing, views
from herdmesh.cli.errors import EXIT_UNAVAILABLE, CommandError, from_reason
from herdmesh.cli.mesh.client import HerderClient, find_config_stores
from herdmesh.rpc.client import connect
from herdmesh.rpc.errors import HerdmeshError, Unreachable

#: Maximum number of connectors that an error names; of a longer name only the beginning is compared.
_NAMES_MAX = 10
_NAME_LENGTH_MAX = 200
_HISTORY_SERVICE = "herdmesh.api.configstore.v1.ConfigReadService"
_HISTORY_TIMEOUT_S = 10.0
_HISTORY_PAGE_SIZE = 200


async def fetch_connectors(client: HerderClient, *, full: bool = True, show_secrets: bool = False) -> list[views.Json]:
    """All connectors, over all pages; not `full` = without configs, traces and progress."""
    view = messages.CONNECTOR_VIEW_FULL if full else messages.CONNECTOR_VIEW_STATUS
    found: list[views.Json] = []
    token = ""
    while True:
        reply: Any = await client.call(
            lambda stub: stub.ListConnectors,
            messages.ListConnectorsRequest(page_token=token, view=view),
        )
        found += [views.connector(one, show_secrets=show_secrets) for one in reply.connectors]
        token = reply.next_page_token
        if not token:
            return found


async def fetch_connector(client: HerderClient, name: str, *, show_secrets: bool = False) -> views.Json:
    """One connector. The error "not found" lists the existing ones."""
    try:
        reply = await client.call(lambda stub: stub.GetConnector, messages.GetConnectorRequest(name=name))
    except CommandError as error:
        if error.reason == "CONNECTOR_NOT_FOUND":
            existing = _some([one["name"] for one in await fetch_connectors(client, full=False)], name)
            raise from_reason(error.reason, f"no connector {name}; there are: {existing}") from None
        raise
    return views.connector(reply.connector, show_secrets=show_secrets)


async def fetch_tasks(client: HerderClient, named: str) -> list[views.Json]:
    """The tasks of a connector, or the one that `connector/0` names. Raises CommandError when there is none."""
    connector, slash, number = named.rpartition("/")
    if not (slash and number.isdecimal()):
        return listing.tasks_of([await fetch_connector(client, named)])
    found = listing.tasks_of([await fetch_connector(client, connector)])
    one = [task for task in found if str(task["id"]) == number]
    if not one:
        existing = ", ".join(str(task["id"]) for task in found) or "none"
        raise from_reason("TASK_NOT_FOUND", f"connector {connector} has no task {number}; there are: {existing}")
    return one


async def fetch_workers(client: HerderClient) -> list[views.Json]:
    """All workers, also those that are lost or drained."""
    reply = await client.call(lambda stub: stub.ListWorkers, admin.ListWorkersRequest())
    return [views.worker(one) for one in reply.workers]


async def fetch_worker(client: HerderClient, worker_id: str) -> views.Json:
    """One worker. The error "not found" lists the existing ones."""
    known = await fetch_workers(client)
    for one in known:
        if one["worker_id"] == worker_id:
            return one
    existing = ", ".join(one["worker_id"] for one in known) or "none"
    raise from_reason("WORKER_NOT_FOUND", f"no worker {worker_id}; there are: {existing}")


async def fetch_plugins(client: HerderClient) -> tuple[list[views.Json], list[views.Json]]:
    """The plugins that live workers can load, and those that were found but cannot be used."""
    reply = await client.call(lambda stub: stub.ListPlugins, admin.ListPluginsRequest())
    return [views.plugin(one) for one in reply.plugins], [*map(views.refused_plugin, reply.refused)]


async def fetch_loggers(client: HerderClient, below: str = "") -> list[views.Json]:
    """The levels of loggers, worker by worker; `below` = only this logger and those below it."""
    reply = await client.call(lambda stub: stub.GetLoggers, admin.GetLoggersRequest(logger=below))
    return [views.logger(one) for one in reply.loggers]


async def history_entries(
    name: str, config_store: str | None, page_size: int = _HISTORY_PAGE_SIZE
) -> AsyncIterator[store.HistoryEntry]:
    """The changes, newest first, page by page. Raises CommandError."""
    addresses = find_config_stores(config_store)
    async with connect(addresses, _HISTORY_SERVICE if len(addresses) > 1 else "") as channel:
        ask: Any = ConfigReadServiceStub(channel).GetHistory
        token = ""
        while True:
            request = store.GetHistoryRequest(connector=name, page_size=page_size, page_token=token)
            try:
                page: store.GetHistoryResponse = await ask(request, timeout=_HISTORY_TIMEOUT_S)
            except Unreachable as error:
                raise CommandError(
                    "UNREACHABLE",
                    f"no config store answers at {', '.join(addresses)} ({error.message})",
                    "--config-store HOST:PORT or HERDMESH_CONFIG_STORE names one; `herd doctor` checks all.",
                    EXIT_UNAVAILABLE,
                ) from None
            except HerdmeshError as error:
                raise from_reason(error.reason, error.message) from None
            for entry in page.changes:
                yield entry
            token = page.next_page_token
            if not token:
                return


def _some(names: list[str], like: str) -> str:
    """Existing names; of many those that are nearest to the requested one."""
    if len(names) > _NAMES_MAX:
        near = difflib.get_close_matches(like[:_NAME_LENGTH_MAX], names, _NAMES_MAX, 0.3)
        return f"{len(names)}, such as {', '.join(near or names[:_NAMES_MAX])}"
    return ", ".join(names) or "none yet"
