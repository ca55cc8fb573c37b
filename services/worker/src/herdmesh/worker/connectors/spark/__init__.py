"""`SparkSink`: records to whatever Spark can write, by a Spark of the task's own."""
