"""The herder. Imports one module, which makes importing the rest cheap."""

from herdmesh.rpc import import_tweaks as import_tweaks
