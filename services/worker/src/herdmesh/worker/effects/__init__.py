"""Everything a worker does to the outside world. Each effect takes instructions and answers by events, and never blocks
the loop: what blocks (Kafka's admin calls, an author's code, Spark) runs in threads.
"""
