"""Parts of the PostgreSQL source that stand on their own: hours that a clock skips."""
