"""`SparkJdbcSource`: reads tables of any database with a JDBC driver. Owns the connector, its task and its SQL."""
