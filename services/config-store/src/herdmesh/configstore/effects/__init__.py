"""What the config store does to the world: the topic store it opens, Connect's group it looks at, the election it runs.

Owns every Kafka client and every clock of this service.
"""
