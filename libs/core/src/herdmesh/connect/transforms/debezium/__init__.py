"""Debezium's transformations of change events, as its release 3.6.1 has them.

Owns the classes, each with its module. Invariant: what a record becomes is what Debezium's own class makes of it
(golden vectors debezium.jsonl), but for the rows of docs/reference/differences.md.
"""
