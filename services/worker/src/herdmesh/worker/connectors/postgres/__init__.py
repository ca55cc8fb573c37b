"""Connectors of PostgreSQL.

`common` connects, `types` knows what a column's values are in Connect; both are of all connectors here. `source*` reads
tables by queries, `sink*` writes them, `cdc*` reads their changes.
"""
