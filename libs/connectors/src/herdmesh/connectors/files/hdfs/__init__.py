"""Confluent's HDFS sinks, run by `FileSink`'s task. Owns the connector."""
