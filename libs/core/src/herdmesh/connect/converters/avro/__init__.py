"""AvroConverter: values in Avro, their schemas in a registry; mapped as Confluent's `AvroData` maps them."""
