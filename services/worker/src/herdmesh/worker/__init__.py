"""Worker service. Imports one thing: what makes importing the rest cheap."""

from herdmesh.rpc import import_tweaks as import_tweaks
