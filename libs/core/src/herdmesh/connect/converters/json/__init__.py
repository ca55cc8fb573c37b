"""JsonConverter: values in JSON, with or without the schema envelope; fast and reference paths give equal bytes."""
