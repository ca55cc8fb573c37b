"""Parts of the PostgreSQL sink that stand on their own: its tables, which records name the same row, and how dates are
written."""
