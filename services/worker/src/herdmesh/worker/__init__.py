"""Worker service. The package imports only the module that makes later imports cheaper."""

from herdmesh.rpc import import_tweaks as import_tweaks
