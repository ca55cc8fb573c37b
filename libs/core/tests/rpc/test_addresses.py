"""The address that a service advertises: never one that is the same on every host."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from herdmesh.rpc.settings import AdvertisedSettings, is_wildcard


class _Settings(AdvertisedSettings):
    listen: str = Field(default="127.0.0.1:7", description="host:port to serve gRPC on")


@pytest.mark.parametrize("address", ["0.0.0.0:7204", "[::]:7204", ":7204", "*:7204", "[0:0:0:0:0:0:0:0]:7204"])
def test_an_address_that_is_the_same_on_every_host_is_not_advertised(address: str) -> None:
    assert is_wildcard(address)
    with pytest.raises(ValidationError, match=r"listen is .*set advertised_address \(HERDMESH_ADVERTISED_ADDRESS\)"):
        _Settings.load([f"--listen={address}"])
    with pytest.raises(ValidationError, match=r"advertised_address is .*not an address that another host can reach"):
        _Settings.load([f"--advertised-address={address}"])
    settings = _Settings.load([f"--listen={address}", "--advertised-address=worker-1.example:7204"])
    assert settings.address(7204) == "worker-1.example:7204"
    assert settings.local_address(7204) == "127.0.0.1:7204"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "worker-1", "10.0.0.7"])
def test_the_advertised_address_is_the_listen_address_with_the_assigned_port(host: str) -> None:
    settings = _Settings.load([f"--listen={host}:0"])
    assert settings.address(5) == settings.local_address(5) == f"{host}:5"
