"""The connectors that ship with Herdmesh, a distribution of their own (`herdmesh-connectors`, ADR 0020).

Owns one folder for each family, with the same file names: `connector.py` is what a worker loads, `settings.py` reads
its config, `task.py` moves records; a family of several connectors has a folder for each. `common`, `values` and
`table_source` are shared by families. A worker finds the connectors as it finds anybody's, by the entry points of the
group `herdmesh.connectors`; no other part of Herdmesh imports them.

Invariant: they need `herdmesh.sdk` and the modules of the core that `.importlinter` names, and nothing of a worker.
"""
