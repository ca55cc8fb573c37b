"""`herd transform` without its command line: reading records, running a chain on them, showing the results.

Imports nothing of a cluster (gRPC, Kafka's client, Spark): a trial of a chain starts at once, anywhere.
"""
