"""ProtobufConverter: values in Protobuf, their files in a registry; mapped as in Confluent's `ProtobufData`."""
