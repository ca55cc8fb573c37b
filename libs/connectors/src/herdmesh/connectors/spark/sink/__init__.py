"""`SparkSink`: writes records to any target that Spark writes. Owns the connector, its task and the targets."""
