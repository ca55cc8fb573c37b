"""Commands about the difference between a config in a file and the one in force: `herd diff` and `herd edit`."""
