"""`JdbcSinkConnector` for PostgreSQL: writes, updates and deletes rows.

Owns the connector and its task, tables and their evolution (`tables`, `table_catalog`), rows and keys (`rows`,
`key_identity`), the texts of values (`texts` and its neighbours) and the ledger of exactly-once delivery (`ledger`).
"""
