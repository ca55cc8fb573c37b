"""The only place that imports pyspark: the session, the jobs, and what runs in executors."""
