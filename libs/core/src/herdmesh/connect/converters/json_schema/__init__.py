"""JsonSchemaConverter: values in JSON, their JSON Schemas in a registry; mapped as in Confluent's `JsonSchemaData`."""
