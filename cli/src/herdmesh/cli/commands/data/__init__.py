"""Commands for the data itself: topics, and records in and out."""
