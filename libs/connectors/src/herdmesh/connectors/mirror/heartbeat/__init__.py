"""`MirrorHeartbeatConnector`: writes heartbeats to the workers' cluster. Owns the connector and its task."""
