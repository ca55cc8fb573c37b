"""`Datagen`: generates records from an Avro schema, with the settings of Confluent's datagen connector.

Owns the connector, the reading of schemas (`avro_schema`), the columns of random values (`columns`), texts that match a
regular expression (`regex_texts`) and Confluent's sample schemas (`quickstarts`). No other family imports it.
"""
