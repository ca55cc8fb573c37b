"""Effects of the herder: clients of the two stores. No Kafka client in it (docs/design/README.md, section 2).

`campaign` campaigns for leadership, `watches` follows both stores, `writes` carries out the state's writes, `topics`
and `topic_tracking` list and record the topics in use, `cluster_id` asks for the Kafka cluster's id.
"""
