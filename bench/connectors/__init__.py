"""Connectors of Herdmesh and of Java, and the same job written with the Python SDK, side by side."""
