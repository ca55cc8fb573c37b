"""PostgreSQL: a source of tables, change data capture, and a sink.

Owns the three connectors (`source`, `cdc`, `sink`) and their shared parts: the connection and the server's errors
(`connection`, `jdbc_url`, `sqlstates`), types (`types`), names (`names`) and the placeholder of unchanged values
(`unchanged_placeholder`). No other family imports it.
"""
