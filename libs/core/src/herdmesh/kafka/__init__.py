"""What the stores and the record loop both ask Kafka, neither of which may import the other.

Owns no client: a caller lends its own, made, secured and closed by its own rules. Invariant: nothing here writes, waits
longer than it is told to, or knows what a store or a task is.
"""
