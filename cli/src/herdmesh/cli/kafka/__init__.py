"""Kafka for commands: topics, and records in and out, without Typer.

Owns the cluster's address, clients for it, and the reading and printing of records. The commands are in
`herdmesh.cli.commands.data`.

Invariant: only `herdmesh.cli.commands.data` imports these modules, and only when a command runs (except `options`), so
that `herd` starts without Kafka's client. No call here runs on an event loop: the commands that use them have none.
"""
