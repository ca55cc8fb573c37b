"""Memory engine of the topic store: `memory_store` is a store over topics of this process.

Owns a broker in memory that passes the same contract suite as Kafka's. Invariant: nothing here imports a Kafka client.
"""
