"""Values that a config only refers to: `${provider:path:key}` (docs/reference/connect/configs.md, section 8, KIP-297,
KIP-421).

`base` is what a provider is; `builtin` are Kafka's three; `resolver` makes a worker's providers and resolves configs.
Secrets: whatever is resolved is given to `herdmesh.connect.redaction`.
"""
