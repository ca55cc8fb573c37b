"""Kafka's own transformations (`org.apache.kafka.connect.transforms`), one module each, and their options."""
