"""Lines that report the changes of a stack, for output that is read line by line: a pipe, a file, the supervisor's log.

Owns the texts and the comparison with what was reported before. Prints nothing.
"""

from __future__ import annotations

from herdmesh.devstack.layout import ServiceState, StackState


class StateLines:
    """The changes of one stack's state since the last call."""

    def __init__(self) -> None:
        self._reported: dict[str, tuple[str, int]] = {}
        self._notices: set[str] = set()

    def changes(self, state: StackState) -> list[str]:
        """One line for each service whose state or count of restarts changed, and one for each new notice."""
        lines: list[str] = []
        for service in state.services:
            now = (service.state, service.restarts)
            if self._reported.get(service.name) != now:
                self._reported[service.name] = now
                lines.append(_line(service))
        lines += [f"note: {one}" for one in state.notices if one not in self._notices]
        self._notices.update(state.notices)
        return lines


def _line(service: ServiceState) -> str:
    line = f"{service.name} {service.state}"
    if service.address and service.state != "stopped":
        line += f" at {service.address}"
    if service.mark is not None and service.state == "serving":
        line += f", process {service.mark.pid}"
    if service.restarts:
        line += f", restart {service.restarts}"
    if service.detail and service.state in ("fetching", "restarting", "failed"):
        line += f": {service.detail}"
    return line
