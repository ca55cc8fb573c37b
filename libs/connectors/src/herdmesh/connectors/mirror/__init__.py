"""The mirror: MirrorMaker 2's source, checkpoint and heartbeat connectors.

Owns the three connectors (`source`, `checkpoint`, `heartbeat`) and their shared parts: keys and client settings
(`keys`, `client_settings`), the replication policy (`topic_naming`), offset translation (`offset_translation`), the
clients of a cluster (`cluster`) and the base classes (`base_connector`). No other family imports it.
"""
