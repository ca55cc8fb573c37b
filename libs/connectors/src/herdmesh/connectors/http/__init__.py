"""`HttpSink`: records as HTTP requests, with the settings of Aiven's and Confluent's HTTP sinks.

Owns the connector, building requests (`requests`), sending one (`client`), and sending those of several partitions
concurrently (`partition_lanes`). No other family imports it.
"""
