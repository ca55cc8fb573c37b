"""What `herd transform` does, without the command line: reading records, running a chain on them, showing what came.

Imports nothing of a cluster (gRPC, Kafka's client, Spark): trying a chain starts at once, anywhere.
"""
