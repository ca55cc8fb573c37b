"""References in configs: their resolution, the errors of unresolvable ones, and the way back from values to
references.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdmesh.connect.config import redaction
from herdmesh.connect.config.config_def import ConfigDef, ConfigKey, Importance, Type
from herdmesh.connect.config.redaction import redacted, redacted_value, url_passwords, without_url_passwords
from herdmesh.connect.config_providers.base import ConfigData, ConfigProvider
from herdmesh.connect.config_providers.resolver import ConfigProviders
from herdmesh.connect.errors import ConfigError

_JAVA = "org.apache.kafka.common.config.provider."


@pytest.fixture(autouse=True, scope="module")
def _secrets_of_its_own() -> Iterator[None]:
    """Restore the known secrets, so that texts of other tests are not redacted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_secrets", redaction.Secrets())
        yield


class Known(ConfigProvider):
    """Answers with fixed values."""

    def __init__(self, data: Mapping[str, str], ttl_ms: int | None = None) -> None:
        self.data, self.ttl_ms = data, ttl_ms
        self.asked: list[tuple[str, frozenset[str]]] = []

    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        self.asked.append((path, keys))
        return ConfigData({key: self.data[key] for key in keys if key in self.data}, self.ttl_ms)


def test_the_builtin_providers_read_what_kafkas_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "db.properties").write_text("user = ann\npass\\:word=p\\u00e4ss\\\n  wörd\n", encoding="utf-8")
    (tmp_path / "token").write_text("tok-en\n", encoding="utf-8")
    monkeypatch.setenv("HERD_TEST_PASSWORD", "from-env")
    worker = {
        "config.providers": "f,dir,env",
        "config.providers.f.class": f"{_JAVA}FileConfigProvider",
        "config.providers.f.param.allowed.paths": str(tmp_path),
        "config.providers.dir.class": "Directory",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "HERD_.*",
    }
    providers = ConfigProviders.of(worker)
    file = tmp_path / "db.properties"
    config = {
        "user": f"${{f:{file}:user}}",
        "password": f"x-${{f:{file}:pass:word}}-${{f:{file}:user}}",
        "token": f"${{dir:{tmp_path}:token}}",
        "env": "${env:HERD_TEST_PASSWORD}",
        "plain": "${1} $ {a:b}",
        "null": None,
    }
    assert providers.resolve(config).config == {
        "user": "ann",
        "password": "x-pässwörd-ann",
        "token": "tok-en\n",
        "env": "from-env",
        "plain": "${1} $ {a:b}",
        "null": None,
    }
    for bad, wanted in {
        "${f:/etc/../etc/passwd:root}": "not within allowed.paths",
        f"${{f:{tmp_path}/../x:a}}": "not within allowed.paths",
        f"${{f:{file}:nothing}}": f"has no key nothing at {file}",
        f"${{f:{tmp_path}/none:a}}": "Could not read properties",
        f"${{dir:{file}:a}}": "Could not list directory",
        f"${{dir:{tmp_path}:../db.properties}}": "has no key",
        "${env:PATH}": "has no key PATH",
        "${env:some:PATH}": "Path is not supported for EnvVarConfigProvider",
        "${vault:a:b}": "the workers have no config provider vault",
    }.items():
        with pytest.raises(ConfigError) as raised:
            providers.resolve({"key": bad})
        assert wanted in str(raised.value)
        assert bad in str(raised.value)
        assert raised.value.field == "key"
        assert raised.value.fix


def test_each_provider_and_path_is_queried_once_with_all_keys() -> None:
    one = Known({"a": "${k:b}", "b": "2"})
    resolved = ConfigProviders({"k": one}).resolve({"x": "${k:p:a}${k:p:b}", "y": "${k:p:b}", "z": "${k:b}"})
    assert resolved.config == {"x": "${k:b}2", "y": "2", "z": "2"}
    assert one.asked == [("p", frozenset("ab")), ("", frozenset("b"))]


def test_the_shortest_ttl_counts() -> None:
    providers = ConfigProviders({"a": Known({"k": "v"}, 500), "b": Known({"k": "v"}, 20), "c": Known({"k": "v"}, -1)})
    assert providers.resolve({"x": "${a:k}${b:k}${c:k}"}).ttl_ms == 20
    assert providers.resolve({"x": "${c:k}"}).ttl_ms is None
    given = ConfigProviders({"a": Known({"k": "v"}), "b": Known({"k": "v"}, 90)}, {"a": 70, "b": 10})
    assert given.resolve({"x": "${a:k}"}).ttl_ms == 70, "as the worker says"
    assert given.resolve({"x": "${b:k}"}).ttl_ms == 90, "the provider knows better"


def test_configs_returned_by_an_authors_code_are_stored_with_references() -> None:
    resolved = ConfigProviders({"k": Known({"pw": "s3cret", "pin": "12"})}).resolve(
        {"password": "${k:pw}", "pin": "${k:pin}", "tasks.max": "12"}
    )
    made = {"password": "s3cret", "pin": "12", "tasks.max": "12", "url": "db://u:s3cret@h/12", "none": None}
    assert resolved.put_back(made) == {
        "password": "${k:pw}",
        "pin": "${k:pin}",
        "tasks.max": "12",
        "url": "db://u:${k:pw}@h/12",
        "none": None,
    }


def test_an_unusable_provider_of_a_worker_is_reported_with_its_property() -> None:
    for worker, name in (
        ({"config.providers": "x"}, "config.providers.x.class"),
        ({"config.providers": "x", "config.providers.x.class": "Volt"}, "config.providers.x.class"),
        (
            {
                "config.providers": "x",
                "config.providers.x.class": "File",
                "config.providers.x.param.allowed.paths": "rel",
            },
            "config.providers.x.param.allowed.paths",
        ),
        (
            {"config.providers": "x", "config.providers.x.class": "File", "config.providers.x.param.ttl.ms": "1m"},
            "config.providers.x.param.ttl.ms",
        ),
    ):
        with pytest.raises(ConfigError) as raised:
            ConfigProviders.of(worker)
        assert raised.value.field == name


def test_a_custom_provider_is_found_by_the_name_of_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package, as `importlib.metadata` sees it; its params are passed without their prefix."""
    info = tmp_path / "vault_of_tests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vault-of-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[herdmesh.config_providers]\nTestVault = vault_of_tests:Vault\nNone = vault_of_tests:Other\n"
    )
    (tmp_path / "vault_of_tests.py").write_text(_VAULT)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    worker = {"config.providers": "v", "config.providers.v.class": "TestVault", "config.providers.v.param.at": "north"}
    resolved = ConfigProviders.of(worker).resolve({"password": "a ${v:db/main:pass}", "other": "b"})
    assert resolved.config == {"password": "a north db/main pass", "other": "b"}
    assert "north db/main pass" in resolved.secrets
    assert resolved.ttl_ms == 60_000
    with pytest.raises(ConfigError, match="the entry point None is not a ConfigProvider"):
        ConfigProviders.of({**worker, "config.providers.v.class": "None"})
    with pytest.raises(ConfigError, match="no config provider TestVolt") as refused:
        ConfigProviders.of({**worker, "config.providers.v.class": "TestVolt"})
    assert "did you mean TestVault?" in refused.value.fix


_VAULT = """
from herdmesh.sdk import ConfigData, ConfigProvider


class Other:
    pass


class Vault(ConfigProvider):
    def configure(self, params):
        self.at = params["at"]

    def get(self, path, keys):
        return ConfigData({key: f"{self.at} {path} {key}" for key in keys}, ttl_ms=60_000)
"""


def test_an_error_of_a_custom_provider_is_reported_without_secrets() -> None:
    class Breaks(Known):
        def get(self, path: str, keys: frozenset[str]) -> ConfigData:
            if path == "bad":
                raise RuntimeError("vault said no to s-tok-1")
            return super().get(path, keys)

    providers = ConfigProviders({"v": Breaks({"k": "s-tok-1"})})
    providers.resolve({"a": "${v:k}"})
    with pytest.raises(ConfigError, match=r"vault said no to \*\*\*") as raised:
        providers.resolve({"a": "${v:bad:k}"})
    assert "s-tok-1" not in str(raised.value)


class Answers(Known):
    """Answers with anything."""

    def __init__(self, answer: object) -> None:
        super().__init__({})
        self.answer = answer

    def get(self, path: str, keys: frozenset[str]) -> ConfigData:
        return cast("ConfigData", self.answer)


class _Raising(dict[str, str]):
    def __getitem__(self, key: str) -> str:
        raise KeyError("closed")

    def __contains__(self, key: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"k": "v"}, "its get() returned a value of type dict, not ConfigData"),
        (None, "its get() returned a value of type NoneType, not ConfigData"),
        (ConfigData(cast("dict[str, str]", None)), "'NoneType' is not iterable"),
        (ConfigData(cast("dict[str, str]", {"k": 7})), "its value of k is of type int, not str"),
        (ConfigData({"k": "v"}, cast("int", "60000")), "its ttl_ms is of type str, not int or None"),
        (ConfigData(_Raising()), "closed"),
    ],
)
def test_an_answer_of_the_wrong_type_is_a_failed_look_up(answer: object, why: str) -> None:
    with pytest.raises(ConfigError, match=r"a: \$\{v:k\} cannot be resolved: ") as raised:
        ConfigProviders({"v": Answers(answer)}).resolve({"a": "${v:k}"})
    assert why in str(raised.value)
    assert (raised.value.field, raised.value.fix) == ("a", "check the settings of provider v")


def test_a_secret_known_to_one_answer_is_redacted_only_there() -> None:
    redaction.keep_secret(["kept-on"])
    with redaction.secrets_of_one_answer():
        redaction.keep_secret(["kept-on-here"])
        assert redacted("kept-on kept-on-here") == "*** ***", "the longer first"
        other = threading.Thread(target=lambda: seen.append(redacted("kept-on kept-on-here")))
        seen: list[str] = []
        other.start()
        other.join()
        assert seen == ["*** ***-here"]
    assert redacted("kept-on kept-on-here") == "*** ***-here"


@given(
    st.text(min_size=4, max_size=30).filter(lambda text: not redaction.is_ordinary(text)),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_redacted_text_never_contains_the_secret(secret: str, before: str, after: str) -> None:
    known = redaction.Secrets()
    known.keep([secret])
    assert secret not in known.hidden_in(before + secret + after)


ORDINARY = ["secret", "Password", "postgres", "true", "abc", "a1", "p w"]


@pytest.mark.parametrize("secret", ORDINARY)
@pytest.mark.parametrize(
    "text",
    [
        "{0}", " {0} \n", "password={0}", "password={0}: refused", "password={0}.", "it is password={0} of x",
        "x=1&pw={0}&y", "'{0}'", 'said "{0}"', "the password '{0}': try another", '{{"password": "{0}"}}',
        "{{'password': '{0}'}}",
        '{{\\"password\\":\\"{0}\\"}}', "http://ann:{0}@host/path", "jdbc:x://h/d?password={0}", "password: {0}",
        "password: {0}, user: ann", "the password {0} is wrong", "Passwd is {0}", "[ann,{0}]", "`{0}`",
    ],
)  # fmt: skip
def test_a_secret_that_is_an_ordinary_word_is_redacted_where_it_is_a_value(secret: str, text: str) -> None:
    known = redaction.Secrets()
    known.keep([secret])
    assert known.hidden_in(text.format(secret)) == text.format("***")


@pytest.mark.parametrize(
    "text",
    [
        "the engine secret needs a login", "Vault, secret secret/db: it is sealed (503)", "a secret, which is gone",
        "secret/data/db", '{"secret": "x"}', "jdbc:postgresql://secret/d", "secrets and secret-id", "set secret.key",
        "the connector failed: secret not found", "a_secret=5",
    ],
)  # fmt: skip
def test_an_ordinary_word_in_a_sentence_is_not_redacted(text: str) -> None:
    known = redaction.Secrets()
    known.keep(["secret", "a", "1", "12", "999"])
    assert known.hidden_in(text) == text


def test_a_short_number_is_redacted_where_it_is_a_whole_number() -> None:
    known = redaction.Secrets()
    known.keep(["1234", "123456"])
    text = "password 1234 of ann:123456@h and %401234, at offset 51234, 12345 bytes, task-1234"
    assert known.hidden_in(text) == "password *** of ann:***@h and %40***, at offset 51234, 12345 bytes, task-***"


def test_lists_and_objects_of_a_log_line_are_redacted_too() -> None:
    ConfigProviders({"k": Known({"s": "top-secret\nline-two"})}).resolve({"a": "${k:s}"})
    shown = str(redacted_value({"a": ["top-secret\nline-two", (RuntimeError("x line-two"),)], "n": 7}))
    assert shown == "{'a': ['***', ['x ***']], 'n': 7}"


def test_printed_output_is_redacted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    redaction.keep_secret(["print-ed-secret"])
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    shown = [sys.stdout, sys.stderr]
    redaction.hide_in_output()
    redaction.hide_in_output()
    print("it is", "print-ed-secret")
    print("no: print-ed-secret!", file=sys.stderr)
    sys.stdout.flush()
    assert [cast("io.StringIO", one).getvalue() for one in shown] == ["it is ***\n", "no: ***!\n"]


def test_constantly_changing_secrets_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "KEPT_MAX", 3)
    known = redaction.Secrets()
    known.keep(["stays-1"])
    for number in range(10):
        known.keep([f"goes-{number}", "stays-1"])
    assert known.hidden_in("stays-1 goes-9 goes-8 goes-7") == "*** *** *** goes-7"


@pytest.mark.parametrize(
    ("text", "passwords", "shown"),
    [
        ("http://ann:s%40cret@h:8081/p@q", {"s%40cret", "s@cret"}, "http://ann:***@h:8081/p@q"),
        ("http://a:one-@-pw@h,https://:two-pw@h2/x", {"one-@-pw", "two-pw"}, "http://a:***@h,https://:***@h2/x"),
        ("jdbc:postgresql://u:pw@h/db?me=a:b@c", {"pw"}, "jdbc:postgresql://u:***@h/db?me=a:b@c"),
        ("http://ann@h:80/x:y@z", set[str](), "http://ann@h:80/x:y@z"),
        ("http://ann:${env:PW}@h", set[str](), "http://ann:${env:PW}@h"),
        ("mail ann:pw@h", set[str](), "mail ann:pw@h"),
        (
            "jdbc:db://h/d?user=u&password=p%2Fw/?#1&x=y",
            {"p%2Fw/?#1", "p/w/?#1"},
            "jdbc:db://h/d?user=u&password=***&x=y",
        ),
        ("jdbc:sqlserver://h;PassWord=long-pw;x=y, z", {"long-pw"}, "jdbc:sqlserver://h;PassWord=***;x=y, z"),
        ("db://u:one@h?password=four end", {"one", "four"}, "db://u:***@h?password=*** end"),
        ("db://h?password=${env:PW}&password=", set[str](), "db://h?password=${env:PW}&password="),
        (
            "https://to-ken@h/?pass=x&mypassword=y#password=z",
            set[str](),
            "https://to-ken@h/?pass=x&mypassword=y#password=z",
        ),
    ],
)
def test_passwords_within_urls_are_secrets_also_without_a_reference(text: str, passwords: set[str], shown: str) -> None:
    assert url_passwords(text) == passwords
    assert without_url_passwords(text) == shown
    resolved = ConfigProviders({}).resolve({"url": "".join(text.split("${env:PW}"))})
    assert passwords <= resolved.secrets
    for password in passwords:
        assert redacted(f"no {password}.") == (f"no {password}." if len(password) < 4 else "no ***.")


def test_a_resolved_password_within_a_url_is_a_secret_by_itself() -> None:
    resolved = ConfigProviders({"v": Known({"url": "http://u:from-vault@h"})}).resolve({"url": "${v:url}"})
    assert resolved.secrets == {"http://u:from-vault@h", "from-vault"}


def test_a_parsed_value_of_type_password_is_redacted() -> None:
    definition = ConfigDef(ConfigKey("login", Type.PASSWORD, "", Importance.LOW, "."))
    assert definition.parse({"login": " parsed-login "}) == {"login": "parsed-login"}
    assert redacted("login parsed-login") == "login ***"
    definition.validate({"login": "validated-login"})
    assert redacted("login validated-login") == "login ***"
    assert definition.passwords({"login": "validated-login", "other": "x"}) == {"validated-login"}
