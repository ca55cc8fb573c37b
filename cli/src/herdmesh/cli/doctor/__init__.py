"""Checks of `herd doctor`.

`codes` has every finding's code with its meaning and next step. `examination` queries everything at once. `units`
judges connectors, tasks and workers; `services` judges stores, herders and workers as processes (versions, clocks,
disks); `machine` judges the stack of this machine and Kafka. Prints nothing: `commands/doctor.py` does.
"""

from herdmesh.cli.doctor.codes import CODES, FindingCode, Severity, finding
from herdmesh.cli.doctor.examination import ExaminedServices, examine

__all__ = ["CODES", "ExaminedServices", "FindingCode", "Severity", "examine", "finding"]
