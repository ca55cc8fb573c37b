"""`MirrorSourceConnector`: copies topics of another Kafka cluster. Owns the connector, its task and offset syncs."""
