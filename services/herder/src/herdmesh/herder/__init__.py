"""The herder. Importing the package imports one module first, which makes the rest cheap to import."""

from herdmesh.rpc import import_tweaks as import_tweaks
