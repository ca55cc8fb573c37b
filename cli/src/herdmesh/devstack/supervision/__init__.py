"""Care for a running stack beside its processes: rotation of logs, lines that report changes, notices about what
differs from the usual, and the findings of `herd doctor`. Starts and ends no process.
"""
