"""Effects of the herder: clients of the two stores. None of them is a Kafka client (docs/design/README.md, section 2).

`campaign` campaigns for leadership, `watches` follows both stores, `writes` carries out the state's writes, `topics`
and `topic_tracking` list and record the topics in use, `cluster_id` fetches the Kafka cluster's id.
"""
