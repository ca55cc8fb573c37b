"""Draining and leaving workers: which workers take no more work, and how far each drain has come.

Owns which workers drain or leave, and the sentences about their progress. Does not own moving the units
(`placement.py`): a draining worker takes no unit, and each unit leaves it as soon as another worker can run it; a unit
that no other worker can run stays and runs on. Does not own the requests to drain and undrain (`drain_requests.py`).

A drain belongs to one incarnation of a worker. The leader sends it to the worker, which repeats it in every later
hello, so that the next leader knows it too.

Invariant: the last request to this leader about an incarnation is in force, whatever the worker's next hello contains.
"""

from __future__ import annotations

from herdmesh.herder.state.memory import (
    Fleet,
    Member,
    Step,
    StoreViews,
)
from herdmesh.herder.state.model.events import WorkerHello
from herdmesh.herder.state.workers import plugin_eligibility
from herdmesh.session.messages import SendCommand
from herdmesh.session.worker_commands import SetDraining


def on_hello(step: Step, fleet: Fleet, member: Member, before: Member | None, hello: WorkerHello) -> None:
    """A worker's hello: continue the last request about this incarnation; without one, use the hello's own flag."""
    if before is not None and before.incarnation == member.incarnation:
        member.drain_requested = before.drain_requested
    if hello.leaving or fleet.has_left(member.incarnation):
        leaves(step, fleet, member)
    member.draining = member.leaving or (hello.draining if member.drain_requested is None else member.drain_requested)


def leaves(step: Step, fleet: Fleet, member: Member) -> None:
    """A worker stops for good: this incarnation takes no more work, however often it dials in."""
    if fleet.leaving.is_open:
        fleet.leaving.lengthen(step.rules.leave_gather_ms)
    else:
        fleet.leaving.open(step.rules.leave_gather_ms)
    member.leaving = member.draining = True
    fleet.add_left(member.incarnation)


def gathers_leavers(fleet: Fleet) -> bool:
    """True while more workers may announce that they leave. A unit moved to one of them would start in vain: until then
    units run on where they are. Ends at once when no worker is left that takes work.
    """
    return fleet.leaving.is_open and any(member.takes_work for member in fleet.members.values())


def gone(fleet: Fleet, member: Member, *, held_nothing: bool) -> None:
    """An incarnation of a worker has ended; `held_nothing` = it held no unit then."""
    if member.draining and held_nothing:
        fleet.add_departed(member)


def remind(fleet: Fleet, member: Member, hello_draining: bool) -> None:
    """Send a worker, after the welcome, the drain request that it missed."""
    if member.drain_requested is not None and member.drain_requested is not hello_draining:
        fleet.send_to(member.worker_id, SendCommand("", SetDraining(member.drain_requested)))


def reason(step: Step, stores: StoreViews, fleet: Fleet, member: Member) -> str:
    """Why a worker is not simply CONNECTED, in one line; empty when it is."""
    if member.session is None:
        left_ms = max(0, (member.broken_ms or step.now) + step.rules.stream_grace_ms - step.now)
        seconds = -(-left_ms // 1000)
        return f"its stream broke; its units go elsewhere unless it dials in again within {seconds} s"
    if not member.draining:
        return ""
    if not member.load:
        return "it leaves and holds nothing more" if member.leaving else "drained: `herd undrain` gives it work again"
    count = len(member.load)
    text = f"{'it leaves' if member.leaving else 'it drains'}: {count} unit{'s' if count > 1 else ''} to move"
    stuck = sum(1 for unit in member.load if not _has_other_place(stores, fleet, unit.connector))
    return f"{text}, of which {stuck} can run on no other worker" if stuck else text


def _has_other_place(stores: StoreViews, fleet: Fleet, name: str) -> bool:
    entry = stores.entries.get(name)
    if entry is None:
        return True  # it is being stopped for good
    return any(other.takes_work and plugin_eligibility.runs(fleet, other, entry) for other in fleet.members.values())
