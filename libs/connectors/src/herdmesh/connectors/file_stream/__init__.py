"""Kafka's file connectors: `FileStreamSource` reads the lines of a file, `FileStreamSink` appends lines to one.

Owns both connectors and their shared settings
(docs/reference/connect/data-model.md, section 8). No other family imports it.
"""
