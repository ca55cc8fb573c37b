"""Records through Herdmesh and through Java Connect, side by side."""
