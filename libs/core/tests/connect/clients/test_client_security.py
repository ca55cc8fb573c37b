"""Java's settings for TLS and logins in librdkafka's terms: precedence, translation of each, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from herdmesh.connect.clients.client_security import client_access
from herdmesh.connect.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
MSK_LOGIN = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
MSK = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{IAM} required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
JAAS = f'{PLAIN} required username="u" password="p";'
KEY = "-----BEGIN PRIVATE KEY----- QUJD REVG -----END PRIVATE KEY-----"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----"


def under(prefix: str, config: dict[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in config.items()}


def translated(**config: str) -> dict[str, str]:
    """Translation of a worker's own settings; in names, `__` stands for a dot."""
    return dict(client_access("admin", {name.replace("__", "."): value for name, value in config.items()}).config)


def test_the_most_specific_setting_wins() -> None:
    worker = {**LOGIN, "sasl.jaas.config": JAAS, "consumer.ssl.truststore.location": "ca", "group.id": "g"}
    worker["consumer.ssl.truststore.type"] = "PEM"
    connector = {"consumer.override.sasl.jaas.config": JAAS.replace('"u"', '"other"'), "producer.override.acks": "all"}
    whole = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.password": "p"}
    assert client_access("producer", worker, connector).config == {**whole, "sasl.username": "u"}
    assert client_access("consumer", worker, connector).config == {
        **whole,
        "sasl.username": "other",
        "ssl.ca.location": "ca",
    }


def test_a_client_with_its_own_protocol_inherits_nothing_from_the_worker() -> None:
    """As in Connect, where the worker's own `ssl.*` may be for its REST server."""
    worker = {
        "ssl.keystore.location": "rest.jks",
        "security.protocol": "SSL",
        "consumer.security.protocol": "PLAINTEXT",
    }
    assert client_access("consumer", worker).config == {"security.protocol": "PLAINTEXT"}
    worker["admin.security.protocol"] = "SSL"
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location"):
        client_access("admin", worker)  # Connect's admin clients take all of it


def test_settings_that_the_protocol_does_not_use_are_not_checked() -> None:
    unread = {"ssl.keystore.location": "own.jks", "sasl.mechanism": "GSSAPI"}
    assert client_access("admin", unread).config == {}
    assert client_access("admin", {**unread, "security.protocol": "plaintext"}).config == {
        "security.protocol": "PLAINTEXT"
    }


@pytest.mark.parametrize(
    ("text", "login"),
    [
        (f'{SCRAM} required username="a b" password="p\\"q;=\\\\";', ("a b", 'p"q;=\\')),
        (f"{PLAIN}\n  REQUIRED\n  password='s=c' username=bob ;\n", ("bob", "s=c")),
        (f'{PLAIN} required serviceName="x" "username"="u" password="ü";', ("u", "ü")),
    ],
)
def test_logins_are_parsed_as_in_java(text: str, login: tuple[str, str]) -> None:
    found = translated(security__protocol="SASL_PLAINTEXT", sasl__mechanism="SCRAM-SHA-512", sasl__jaas__config=text)
    assert (found["sasl.username"], found["sasl.password"]) == login
    assert "sasl.jaas.config" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is missing, and PLAIN needs it"),
        (";", "Login module not specified"),
        (f"{PLAIN};", "Login module control flag not specified"),
        (f"{PLAIN} username=u password=p;", "Invalid login module control flag 'username'"),
        (f"{PLAIN} required username=u password;", "Value not specified for key 'password'"),
        (f"{PLAIN} required username=u password=p", "not terminated by semi-colon"),
        (f"{JAAS} {JAAS}", "more than one login module"),
        (f'{PLAIN} required username="u password=p;', "a quote in the JAAS config is not closed"),
        (f"{PLAIN} required username=u;", "has no password"),
        (f'{SCRAM} required username=u password=p tokenauth="true";', "delegation tokens"),
        ("com.example.Login required a=b;", "does not support com.example.Login"),
    ],
)
def test_an_invalid_login_reports_its_error_and_never_shows_the_login(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        client_access("consumer", under("consumer.", {**LOGIN, "sasl.jaas.config": text} if text else LOGIN))
    assert refused.value.field.removeprefix("consumer.") == "sasl.jaas.config"
    assert refused.value.fix
    assert "password=p" not in str(refused.value)


def test_oauth_tokens_come_from_the_identity_provider() -> None:
    jaas = f'{OAUTH} required clientId="me" clientSecret="s3" scope="kafka" extension_pool="x" extension_l="y";'
    found = translated(
        security__protocol="SASL_SSL",
        sasl__mechanism="OAUTHBEARER",
        sasl__jaas__config=jaas,
        sasl__oauthbearer__token__endpoint__url="https://id/token",
        sasl__login__callback__handler__class="org.apache.kafka.common.security.oauthbearer.secured."
        "OAuthBearerLoginCallbackHandler",
    )
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s3",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "pool=x,l=y",
        "sasl.oauthbearer.token.endpoint.url": "https://id/token",
    }


def test_certificates_are_translated() -> None:
    pem = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
    files = {**pem, "ssl.truststore.location": "ca.pem", "ssl.keystore.location": "own.pem", "ssl.key.password": "k"}
    assert client_access("admin", files).config == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "own.pem",
        "ssl.key.location": "own.pem",
        "ssl.key.password": "k",
    }
    inline = {
        **pem,
        "ssl.truststore.certificates": f"{CERTIFICATE} {CERTIFICATE}",
        "ssl.keystore.key": KEY,
        "ssl.keystore.certificate.chain": CERTIFICATE,
    }
    assert client_access("admin", inline).config == {
        "security.protocol": "SSL",
        "ssl.ca.pem": f"{CERTIFICATE}\n{CERTIFICATE}\n",
        "ssl.key.pem": "-----BEGIN PRIVATE KEY-----\nQUJD\nREVG\n-----END PRIVATE KEY-----\n",
        "ssl.certificate.pem": f"{CERTIFICATE}\n",
    }
    store = {"security.protocol": "SSL", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "own.p12"}
    store |= {"ssl.keystore.password": "s", "ssl.key.password": "s", "ssl.endpoint.identification.algorithm": ""}
    assert client_access("admin", store).config == {
        "security.protocol": "SSL",
        "ssl.keystore.location": "own.p12",
        "ssl.keystore.password": "s",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("config", "key", "says"),
    [
        ({"security.protocol": "TLS"}, "security.protocol", "must be one of PLAINTEXT"),
        ({"ssl.truststore.location": "t.jks"}, "ssl.truststore.location", "keytool -list -rfc -keystore t.jks"),
        ({"ssl.keystore.location": "k.jks"}, "ssl.keystore.location", "-deststoretype PKCS12"),
        ({"ssl.truststore.certificates": CERTIFICATE}, "ssl.truststore.certificates", "ssl.truststore.type=PEM"),
        ({"ssl.keystore.key": KEY, "ssl.keystore.type": "PEM"}, "ssl.keystore.key", "certificate.chain"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "k"}, "ssl.keystore.location", "keystore.password"),
        ({"ssl.cipher.suites": "A,TLS_AES_256_GCM_SHA384"}, "ssl.cipher.suites", "OpenSSL"),
        ({"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class", "runs no Java"),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "c", "ssl.truststore.password": "p"},
            "ssl.truststore.password",
            "cannot be specified for PEM",
        ),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism", "means GSSAPI"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism", "use one of PLAIN"),
        ({**MSK, "sasl.jaas.config": f"{OAUTH} required;"}, "sasl.jaas.config", "use software.amazon.msk.auth.iam"),
        ({**MSK, "sasl.jaas.config": f"{IAM} required awsProfileNam=x;"}, "sasl.jaas.config", "mean awsProfileName?"),
        ({**MSK, "sasl.jaas.config": f"{IAM} required awsStsRegion=x;"}, "sasl.jaas.config", "add awsRoleArn"),
        (
            {**MSK, "sasl.jaas.config": f"{IAM} required awsRoleArn=r awsRoleAccessKeyId=k;"},
            *("sasl.jaas.config", "add awsRoleSecretAccessKey"),
        ),
        ({**MSK, "sasl.login.class": "x.Y"}, "sasl.login.class", "runs no Java"),
        ({**LOGIN, "sasl.login.callback.handler.class": MSK_LOGIN}, "sasl.login.callback.handler.class", "no Java"),
        ({**LOGIN, "sasl.login.class": "x.Y"}, "sasl.login.class", "runs no Java"),
        (
            {**LOGIN, "sasl.mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.endpoint.url",
            "tokens without a signature",
        ),
    ],
)
def test_settings_that_librdkafka_lacks_are_refused_with_an_alternative(
    config: dict[str, str], key: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        client_access("producer", {}, under("producer.override.", {"security.protocol": "SSL", **config}))
    assert refused.value.field.removeprefix("producer.override.") == key
    assert says in f"{refused.value} {refused.value.fix}"


def test_java_only_settings_are_named_as_ignored() -> None:
    worker = {"security.protocol": "SSL", "ssl.protocol": "TLSv1.3", "ssl.enabled.protocols": "TLSv1.3"}
    found = client_access("consumer", worker, {"consumer.override.ssl.provider": "x"})
    assert found.config == {"security.protocol": "SSL"}
    assert set(found.ignored) == {"ssl.protocol", "ssl.enabled.protocols", "consumer.override.ssl.provider"}


@pytest.mark.parametrize("client", ["admin", "consumer", "producer"])
def test_amazons_iam_login_is_passed_to_the_creator_of_the_client(client: str) -> None:
    told = {name: MSK[name] for name in ("security.protocol", "sasl.mechanism", "sasl.jaas.config")}
    assert client_access(client, MSK).config == told
    assert client_access(client, {}, under(f"{client}.override.", MSK)).config == told
    by_token = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH} required awsProfileName='me';",
        "sasl.login.callback.handler.class": MSK_LOGIN,
    }
    assert client_access(client, by_token).config == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": by_token["sasl.jaas.config"],
    }


def test_amazons_iam_login_without_its_package_is_refused_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herdmesh.connect.clients.msk_iam.SIGNER", "herdmesh_has_no_such_package")
    with pytest.raises(ConfigError, match="is not installed here") as refused:
        client_access("admin", MSK)
    assert refused.value.field == "sasl.mechanism"
    assert 'pip install "herdmesh-core[msk-iam]"' in refused.value.fix
