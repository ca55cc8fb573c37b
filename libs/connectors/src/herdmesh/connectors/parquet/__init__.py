"""`ParquetSink`: records as Parquet files. Owns the connector; settings and task are those of `files`."""
