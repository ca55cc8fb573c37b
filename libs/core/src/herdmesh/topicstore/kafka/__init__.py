"""Kafka engine of the topic store: `kafka_store` is a store over a topic of a real broker.

Owns the clients: one consumer on every shard, one transactional producer, the election and the admin calls. The rules
of a store are the core's. Invariant: no other package of the topic store imports a Kafka client.
"""
