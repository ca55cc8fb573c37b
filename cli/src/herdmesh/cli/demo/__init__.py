"""`herd demo`: flights from a Kafka topic through Spark executors into Parquet, while a worker is killed."""
