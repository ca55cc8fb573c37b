"""Tests of ports for servers started here: a requested one first, else one that the kernel never assigns."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from herdmesh.devstack import ports
from herdmesh.devstack.errors import DevstackError
from herdmesh.devstack.ports import HOST, free_port, free_ports, is_free
from herdmesh.rpc.server import METRICS_PORT_OFFSET

#: The first port that Linux assigns, unless net.ipv4.ip_local_port_range is set; other systems begin at 49,152.
GIVEN_AWAY_FIRST = 32_768


def test_the_first_free_requested_port_is_chosen() -> None:
    first, second = free_ports(2)
    assert free_port([first, second]) == first
    assert free_port([first, second], avoid=[first]) == second
    with socket.socket() as other:
        other.bind((HOST, first))
        other.listen()
        assert not is_free(first)
        assert free_port([first, second]) == second
        assert free_port([first]) not in (first, 0)
    assert is_free(first)


def test_a_number_that_is_no_port_is_not_free() -> None:
    assert not is_free(65_536)
    assert free_port([70_000]) < 65_536


def test_no_chosen_port_is_one_that_the_kernel_assigns() -> None:
    pages = {port + METRICS_PORT_OFFSET for port in free_ports(200)}
    assert max(pages) < GIVEN_AWAY_FIRST


def test_no_metrics_port_collides_with_a_server_of_any_stack() -> None:
    """Holds for any two stacks at any time: stacks do not know each other."""
    chosen, others = set(free_ports(300)), set(free_ports(300))
    assert not {port + METRICS_PORT_OFFSET for port in chosen} & (chosen | others)


def test_a_port_whose_metrics_port_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def all_pages_are_taken(port: int) -> bool:
        asked.append(port)
        return port // 1_000 % 2 == 0

    monkeypatch.setattr(ports, "is_free", all_pages_are_taken)
    monkeypatch.setattr(ports, "_TRIES", 10)
    with pytest.raises(DevstackError, match="10 were tried"):
        free_port()
    assert len(asked) == 20


def test_ports_are_chosen_where_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image with the jars in a cache that is read-only."""
    file = tmp_path / "file"
    file.write_text("not a folder")
    monkeypatch.setenv("HERDMESH_CACHE_DIR", str(file))
    reservations = ports.PortReservations()
    assert reservations.take(free_port())
    reservations.release()
