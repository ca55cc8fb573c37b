"""Kafka Connect's formats and rules in plain Python: record bytes, data model, converters, transformations, configs.

Owns nothing itself. Each package below is a room that says in its `__init__` what it owns and re-exports what others
use; `errors` has the exceptions of all.

Invariant: nothing here imports Spark, Kafka or gRPC, and a room imports only rooms below it (`.importlinter`).
"""
