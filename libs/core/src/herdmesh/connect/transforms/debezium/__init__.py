"""Debezium's transformations of change events, as its release 3.6.1 has them.

Owns the classes, one module each.

Invariant: a record becomes what Debezium's own class makes of it (golden vectors debezium.jsonl), apart from the rows
of docs/reference/differences.md.
"""
