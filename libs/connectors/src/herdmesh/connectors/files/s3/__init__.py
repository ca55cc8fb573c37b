"""Confluent's S3 sink, run by `FileSink`'s task. Owns the connector."""
