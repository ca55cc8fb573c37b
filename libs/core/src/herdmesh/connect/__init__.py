"""Kafka Connect's formats and rules in plain Python: record bytes, data model, converters, transformations, configs.

Owns nothing itself; import from the modules: `config_topic`, `status_topic`, `offsets_topic`, `audit_topic`, `data`,
`converters`, `transforms`, `chain_config`, `config`, `connector_config`, `connector`, `errors`.

Invariant: nothing here imports Spark, Kafka or gRPC.
"""
