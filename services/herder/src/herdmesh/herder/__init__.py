"""The herder. Imports one module, which makes importing the rest cheap."""

from herdmesh.rpc import lean as lean
