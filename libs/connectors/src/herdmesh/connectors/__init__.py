"""The connectors that ship with Herdmesh, in a distribution of their own (`herdmesh-connectors`, ADR 0020).

Owns one folder for each family, with the same file names: `connector.py` is what a worker loads, `settings.py` reads
its config, `task.py` moves records; a family of several connectors has a folder for each. `common`, `values` and
`table_source` are shared by families. A worker finds these connectors like those of any other author, by the entry
points of the group `herdmesh.connectors`; no other part of Herdmesh imports them.

Invariant: the connectors import `herdmesh.sdk` and the modules of
the core that `.importlinter` names, and no module of the worker.
"""
