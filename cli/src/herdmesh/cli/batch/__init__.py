"""Changes of several connectors by one command: files in, selection, confirmation, waiting, results.

Owns the steps that `apply`, `create`, `delete`, `pause`, `restart` and their like share; the commands themselves are in
`herdmesh.cli.commands`. Invariant: all input is checked before the first change and before any question.
"""
