"""`FileStreamSink`: records as lines of a file. Owns the connector and its task."""
