"""The herder's pure state: start reading at `machine.Herder.handle`, then `mesh.py` for what it remembers.

events.py, requests.py -> machine.py -> instructions.py
                             |-- leadership.py  role, epoch, generations
                             |-- sessions.py    workers: hello and adoption, reports, loss
                             |-- lifecycle.py   per connector: wanted against held
                             |     |-- holds.py     stop, acknowledge, start
                             |     `-- tasksets.py  make, commit, fence, count
                             |-- placement.py   who goes where (assignment.py)
                             |-- calls.py       callers' requests (configs.py, restarts.py)
                             |     |-- commands.py  questions to workers (questions.py)
                             |     |-- queries.py   calls that only ask: plans.py, plugins.py, loggers.py, offsets.py
                             |     `-- initial_offsets.py  a create that brings its own offsets
                             |-- session_keys.py  the key of a Connect cluster's internal requests
                             `-- views.py       what callers see
"""

from herdmesh.herder.state.machine import Herder
from herdmesh.herder.state.model import Rules

__all__ = ["Herder", "Rules"]
