"""`herd transform` without its command line: reading records, running a chain on them, printing the results.

Imports no client of a mesh (gRPC, Kafka's client, Spark): a trial of a chain starts at once, anywhere.
"""
