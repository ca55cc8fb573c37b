"""The status store. Imports only the module that makes the other imports cheap."""

from herdmesh.rpc import import_tweaks as import_tweaks
