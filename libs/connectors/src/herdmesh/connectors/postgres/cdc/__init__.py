"""`PostgresConnector` of Debezium: changes of tables from the server's log, as Debezium's events.

Owns the connector and its task, the replication protocol (`pgoutput`, `replication`), the publication (`publication`,
`partition_trees`, `uncaptured_tables`), the snapshot, and the events.
"""
