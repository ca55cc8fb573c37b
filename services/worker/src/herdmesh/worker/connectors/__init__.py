"""The connectors that ship with a worker, registered as entry points of the group `herdmesh.connectors`."""
