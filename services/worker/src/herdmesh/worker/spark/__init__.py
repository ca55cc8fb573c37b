"""The only package that imports pyspark: the session, the jobs, and the code that runs in executors."""
