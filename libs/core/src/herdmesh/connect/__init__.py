"""Kafka Connect's formats and rules in plain Python: record bytes, data model, converters, transformations, configs.

Import from the modules: `config_topic`, `status_topic`, `offsets_topic`, `audit_topic`, `data`, `converters`, `transforms`,
`chain`, `config`, `connector_config`, `errors`. Nothing here imports Spark, Kafka or gRPC.
"""
