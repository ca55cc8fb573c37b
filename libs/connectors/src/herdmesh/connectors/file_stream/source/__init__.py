"""`FileStreamSource`: the lines of a file as records. Owns the connector and its task."""
