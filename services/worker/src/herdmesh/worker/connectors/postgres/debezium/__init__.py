"""Debezium's semantic types, as the PostgreSQL sink writes them."""
