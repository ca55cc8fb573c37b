"""The I/O of the config store: the topic store, Connect's group on the broker, the election of the leading herder.

Owns every Kafka client and every clock of this service.
"""
