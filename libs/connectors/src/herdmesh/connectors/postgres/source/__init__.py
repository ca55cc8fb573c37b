"""`JdbcSourceConnector` for PostgreSQL: reads tables or a query. Owns the connector, its task and its SQL."""
