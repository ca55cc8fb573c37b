"""The herder's pure state: start reading at `machine.Herder.handle`. Rooms, each above those it uses:

machine      dispatches events, and reconciles the connectors that changed
handlers     one module per source of events: stores' watches, results of writes, workers' sessions, leadership
calls        callers' requests, one module per kind
views        connectors, tasks and workers as callers see them, and why each unit is where it is
units        connectors and tasks: wanted against held, placement, task sets, restarts
leadership   whether this herder serves, generations, session keys
workers      plugins, commands, draining
memory       everything that a herder remembers
model        values, events, instructions, requests, and rules over these alone

Events and requests go in (`model.events`, `model.requests`), instructions come out (`model.instructions`).
"""

from herdmesh.herder.state.machine import Herder
from herdmesh.herder.state.model import Rules

__all__ = ["Herder", "Rules"]
