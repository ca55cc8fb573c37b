"""One file per kind of command."""
