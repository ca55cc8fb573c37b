"""What today's catalogue of PostgreSQL can tell of a table as it was when a row was written."""
