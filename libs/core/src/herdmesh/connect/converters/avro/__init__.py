"""AvroConverter: values in Avro, their schemas in a registry; mapped as in Confluent's `AvroData`."""
