"""JsonSchemaConverter: values in JSON, their JSON Schemas in a registry; mapped like Confluent's `JsonSchemaData`."""
