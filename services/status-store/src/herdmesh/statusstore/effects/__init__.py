"""I/O of the status store: the topic store (`store`), leases in real time (`leases`), the relay of the writer's leases
to a replica (`relay`), outcomes kept for retries (`requests`).
"""
