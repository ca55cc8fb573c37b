"""Kafka queries and client wrappers that the stores and the record loop share; neither may import the other.

Owns no client: the caller supplies its own, and creates, secures and closes it. Invariant: nothing here writes, waits
longer than its timeout, or knows what a store or a task is.
"""
