"""ProtobufConverter: values in Protobuf, their files in a registry; mapped as Confluent's `ProtobufData` maps them."""
