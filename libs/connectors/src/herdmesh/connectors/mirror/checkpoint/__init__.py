"""`MirrorCheckpointConnector`: translates the offsets of consumer groups. Owns the connector and its task."""
