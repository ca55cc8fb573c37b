"""Secret stores whose library is not installed, and unknown params."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.config_providers.secret_stores import JAVA_NAMES, secret_store
from herdmesh.connect.config_providers.secret_stores.store import SecretStore
from herdmesh.connect.errors import ConfigError


@pytest.mark.parametrize("name", sorted(JAVA_NAMES))
def test_a_missing_library_is_reported_with_the_extra_that_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = secret_store(name)
    assert cls is not None
    assert issubclass(cls, SecretStore)
    monkeypatch.setitem(sys.modules, cls.libraries[0], None)
    with pytest.raises(ConfigError, match=f"needs the package {cls.libraries[0]}") as raised:
        ConfigProviders.of({"config.providers": "x", "config.providers.x.class": name})
    assert raised.value.field == "config.providers.x.class"
    assert f'pip install "herdmesh-core[{cls.extra}]"' in raised.value.fix
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text(encoding="utf-8"))
    assert cls.extra in project["project"]["optional-dependencies"]


def test_an_unknown_class_is_no_secret_store() -> None:
    assert secret_store("com.example.VaultConfigProvider") is None


def test_an_unknown_param_is_logged_with_the_likely_one() -> None:
    worker = {"config.providers": "v", "config.providers.v.class": "Vault"}
    given = {"vault.address": "http://127.0.0.1:9", "vault.token": "t-o-k-e-n", "vault.namspace": "a"}
    with capture_logs() as logs:
        ConfigProviders.of(worker | {f"config.providers.v.param.{name}": value for name, value in given.items()})
    assert [(one["param"], one["fix"]) for one in logs] == [("vault.namspace", "did you mean vault.namespace?")]
