"""`SparkStreamSource`: reads any source of Spark's Structured Streaming. Owns the connector and its task."""
