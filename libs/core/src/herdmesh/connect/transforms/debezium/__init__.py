"""Debezium's transformations of change events, as of its release 3.6.1.

Owns the classes, one module each.

Invariant: the result equals that of Debezium's own class (golden vectors debezium.jsonl), apart from the rows of
docs/reference/differences.md.
"""
