"""Kafka Connect's formats and rules in plain Python: record bytes, data model, converters, transformations, configs.

Owns nothing itself. Each package below is a room whose `__init__` says what it owns and re-exports the names for other
rooms; `errors` has the exceptions of all.

Invariant: nothing here imports Spark, Kafka or gRPC, and a room imports only rooms below it (`.importlinter`).
"""
