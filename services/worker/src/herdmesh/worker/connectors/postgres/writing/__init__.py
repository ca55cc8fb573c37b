"""Parts of the PostgreSQL sink that stand on their own: which records name the same row, and how dates are written."""
