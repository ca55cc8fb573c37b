"""The worker. Imports one thing: what makes importing the rest cheap."""

from herdmesh.rpc import lean as lean
