"""Logins and encryption of Kafka clients: Java's settings in librdkafka's terms.

Owns `security.protocol`, `ssl.*` and `sasl.*` of every client: their precedence, their translation, and the warnings
about those without a counterpart in librdkafka. Creates no client and opens no file. librdkafka's own names
(`sasl.username`, `ssl.ca.location`) pass unchanged.

Precedence: a connector's `<client>.override.*`, over the worker's `<client>.*`, over the worker's own without a prefix.
Connect passes the last to admin clients only (docs/reference/connect/configs.md, section 5). Here a consumer or
producer that has a `security.protocol` under a prefix uses none of them either; one without a `security.protocol` uses
all of them, so that a login needs to be written only once.

Invariant: a setting that decides whom the client trusts or how it logs in is translated, or is a ConfigError with key
and fix; it is never dropped. Settings that only tune Java's own code are listed in `ignored`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from herdmesh.connect.clients.jaas import parse_jaas
from herdmesh.connect.clients.msk_iam import HANDLERS, LOGIN_HANDLER, MECHANISM, MODULE, MskLogin
from herdmesh.connect.config import FieldViolation, RawConfig, keep_secret
from herdmesh.connect.errors import ConfigError

PROTOCOL = "security.protocol"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM = "sasl.mechanism"
_PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OAUTH = "OAUTHBEARER"
_PREFIXES = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.", "https.ca.")
_JAVA_ONLY = frozenset(
    (
        *("security.providers", "ssl.protocol", "ssl.enabled.protocols", "ssl.provider", "ssl.keymanager.algorithm"),
        *("ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "sasl.login.connect.timeout.ms"),
        *("sasl.login.read.timeout.ms", "sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"),
        *("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience"),
        *("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.scope.claim.name"),
        *("sasl.oauthbearer.jwt.validator.class",),
    )
)
_JAVA_ONLY_PREFIXES = ("sasl.login.refresh.", "sasl.oauthbearer.jwks.", "sasl.kerberos.")
_JAVA_CLASSES = (
    *("ssl.engine.factory.class", "sasl.client.callback.handler.class", "sasl.login.class"),
    *("sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class"),
)
_SECURITY = "org.apache.kafka.common.security."
_PASSWORD_MODULES = (f"{_SECURITY}plain.PlainLoginModule", f"{_SECURITY}scram.ScramLoginModule")
_OAUTH_MODULE = f"{_SECURITY}oauthbearer.OAuthBearerLoginModule"
_JAAS = "sasl.jaas.config"
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
#: Classes whose work librdkafka does itself: it gets a token from the endpoint with the client's credentials.
_KNOWN_CLASSES = frozenset(
    (
        f"{_SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler",
        f"{_SECURITY}oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        f"{_SECURITY}oauthbearer.ClientCredentialsJwtRetriever",
        f"{_SECURITY}oauthbearer.DefaultJwtRetriever",
    )
)
#: librdkafka's names of the settings that are secrets.
_SECRET = frozenset(
    (
        *("sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem"),
        *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
        *("sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem"),
    )
)
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """librdkafka's settings, and the full names of properties that have no effect on it."""

    config: Mapping[str, str]
    ignored: tuple[str, ...] = ()


def is_access(name: str) -> bool:
    """True for a client setting, without its prefix, that this module translates."""
    return name in (PROTOCOL, "security.providers") or name.startswith(_PREFIXES)


def client_access(client: str, worker: RawConfig, connector: RawConfig | None = None) -> ClientAccess:
    """Settings with which one kind of client (`admin`, `consumer`, `producer`) reaches its brokers.

    Args:
        worker: the worker's properties.
        connector: the connector's config, for its overrides.

    Raises:
        ConfigError: `field` is the property's full name.
    """
    return _Translation(_given(client, worker, connector or {})).done()


def override_violations(clients: Iterable[str], connector: RawConfig, worker: RawConfig) -> list[FieldViolation]:
    """The problems of a connector's own TLS and login settings, each only once."""
    found: dict[str, FieldViolation] = {}
    for client in clients:
        if not _under(f"{client}.override.", connector):
            continue
        try:
            client_access(client, worker, connector)
        except ConfigError as error:
            found[error.field] = FieldViolation(error.field, str(error), error.fix)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Setting:
    full_name: str
    value: str


def _given(client: str, worker: RawConfig, connector: RawConfig) -> dict[str, _Setting]:
    own = {**_under(f"{client}.", worker), **_under(f"{client}.override.", connector)}
    if client != "admin" and PROTOCOL in own:
        return own
    return {**_under("", worker), **own}


def _under(prefix: str, config: RawConfig) -> dict[str, _Setting]:
    return {
        name: _Setting(full, str(value).strip())
        for full, value in config.items()
        if full.startswith(prefix) and value is not None and is_access(name := full.removeprefix(prefix))
    }


@dataclass(slots=True)
class _Translation:
    given: dict[str, _Setting]
    found: dict[str, str] = field(default_factory=dict[str, str])
    ignored: list[str] = field(default_factory=list[str])
    _oauth_of_msk: bool = False

    def done(self) -> ClientAccess:
        protocol = self._take(PROTOCOL).upper()
        if not protocol:
            return ClientAccess({})  # Java's default is PLAINTEXT, for which the other settings are not read
        if protocol not in _PROTOCOLS:
            setting = self.given[PROTOCOL]
            raise ConfigError.for_value(
                setting.full_name, setting.value, f"must be one of {', '.join(_PROTOCOLS)}", fix="write one of these"
            )
        self.found[PROTOCOL] = protocol
        logs_in, encrypts = protocol.startswith("SASL"), protocol.endswith("SSL")
        unread = tuple(
            prefix for prefix, read in (("sasl.", logs_in), ("ssl.", encrypts), ("https.", logs_in)) if not read
        )
        self.given = {name: one for name, one in self.given.items() if not name.startswith(unread)}
        self._oauth_of_msk = self._mechanism() == _OAUTH and self._take(_LOGIN_HANDLER) == LOGIN_HANDLER
        self._classes()
        if encrypts:
            self._trust()
            self._own_certificate()
            self._names_and_ciphers()
        if logs_in:
            self._login()
        self._rest()
        keep_secret(value for name, value in self.found.items() if name in _SECRET)
        return ClientAccess(self.found, tuple(self.ignored))

    def _take(self, name: str) -> str:
        """A setting's value; "" when it is not given."""
        return self.given[name].value if name in self.given else ""

    def _drop(self, *names: str) -> None:
        for name in names:
            self.given.pop(name, None)

    def _refuse(self, name: str, message: str, fix: str) -> ConfigError:
        beside = self.given[PROTOCOL].full_name.removesuffix(PROTOCOL)  # the prefix of a missing setting
        full = self.given[name].full_name if name in self.given else beside + name
        return ConfigError(f"{full}: {message}", field=full, fix=fix)

    def _classes(self) -> None:
        known = _KNOWN_CLASSES | HANDLERS if self._is_msk() else _KNOWN_CLASSES
        for name in _JAVA_CLASSES:
            written = self._take(name)
            if written and written not in known:
                message = f"{written} is a Java class, and the Kafka client here (librdkafka) runs no Java"
                raise self._refuse(name, message, "use one of Kafka's own mechanisms, and PEM files for TLS")
            self._drop(name)

    def _trust(self) -> None:
        kind, path = self._take("ssl.truststore.type").upper() or "JKS", self._take("ssl.truststore.location")
        inline = self._take("ssl.truststore.certificates")
        if path and kind != "PEM":
            export = f"keytool -list -rfc -keystore {path} > ca.pem"
            message = f"the Kafka client here (librdkafka) reads certificates as PEM, not a {kind} store"
            fix = f"`{export}`, then ssl.truststore.location=ca.pem, ssl.truststore.type=PEM and no password"
            raise self._refuse("ssl.truststore.location", message, fix)
        if inline and kind != "PEM":
            raise self._refuse("ssl.truststore.certificates", "needs ssl.truststore.type=PEM", "add that")
        if self._take("ssl.truststore.password") and (path or inline):
            text = "SSL trust store password cannot be specified for PEM format."
            raise self._refuse("ssl.truststore.password", text, "leave it out")
        if inline:
            self.found["ssl.ca.pem"] = self._pem("ssl.truststore.certificates")
        elif path:
            self.found["ssl.ca.location"] = path
        self._drop(*(f"ssl.truststore.{name}" for name in ("type", "location", "certificates", "password")))

    def _own_certificate(self) -> None:
        kind, path = self._take("ssl.keystore.type").upper() or "JKS", self._take("ssl.keystore.location")
        key, chain = self._take("ssl.keystore.key"), self._take("ssl.keystore.certificate.chain")
        password = self._take("ssl.keystore.password")
        if path and kind not in ("PEM", "PKCS12"):
            convert = f"keytool -importkeystore -srckeystore {path} -destkeystore own.p12 -deststoretype PKCS12"
            message = f"the Kafka client here (librdkafka) reads PEM or PKCS12, not a {kind} store"
            fix = f"`{convert}`, then ssl.keystore.location=own.p12 and ssl.keystore.type=PKCS12"
            raise self._refuse("ssl.keystore.location", message, fix)
        if (key or chain) and kind != "PEM":
            raise self._refuse(
                "ssl.keystore.key" if key else "ssl.keystore.certificate.chain",
                "needs ssl.keystore.type=PEM",
                "add that",
            )
        if kind == "PEM" and password and (path or key):
            text = "SSL key store password cannot be specified with PEM format, only key password may be specified."
            raise self._refuse("ssl.keystore.password", text, "write it as ssl.key.password")
        if bool(key) is not bool(chain):
            given, other = ("ssl.keystore.key", "ssl.keystore.certificate.chain")[:: 1 if key else -1]
            raise self._refuse(given, f"has no effect without {other}", f"add {other}")
        if key:
            self.found["ssl.key.pem"] = self._pem("ssl.keystore.key")
            self.found["ssl.certificate.pem"] = self._pem("ssl.keystore.certificate.chain")
        elif path and kind == "PEM":
            self.found["ssl.key.location"] = self.found["ssl.certificate.location"] = path
        elif path:
            self._pkcs12(path, password)
        self._drop(*(f"ssl.keystore.{name}" for name in ("type", "location", "password", "key", "certificate.chain")))

    def _pkcs12(self, path: str, password: str) -> None:
        if not password:
            raise self._refuse("ssl.keystore.location", "a PKCS12 store needs ssl.keystore.password", "add that")
        if self._take("ssl.key.password") not in ("", password):
            message = "librdkafka opens the key in a PKCS12 store with the store's password"
            raise self._refuse("ssl.key.password", message, "write the same as ssl.keystore.password, or leave it out")
        self._drop("ssl.key.password")
        self.found |= {"ssl.keystore.location": path, "ssl.keystore.password": password}

    def _pem(self, name: str) -> str:
        """PEM in OpenSSL's form: Java also accepts it on one line, with blanks in place of line ends."""
        blocks = _PEM.findall(self._take(name))
        if not blocks:
            raise self._refuse(
                name, "does not contain PEM (-----BEGIN ...)", "write the PEM text itself, not a file name"
            )
        lines: list[str] = []
        for label, body in blocks:
            lines += [f"-----BEGIN {label}-----", *body.split(), f"-----END {label}-----"]
        return "\n".join(lines) + "\n"

    def _names_and_ciphers(self) -> None:
        name = "ssl.endpoint.identification.algorithm"
        if name in self.given:
            self.found[name] = self._take(name) or "none"
            self._drop(name)
        suites = [one.strip() for one in self._take("ssl.cipher.suites").split(",") if one.strip()]
        if java := next((one for one in suites if one.startswith(("TLS_", "SSL_"))), None):
            message = f"{java} is Java's name of a cipher suite, which OpenSSL does not know"
            fix = "write the OpenSSL name, such as ECDHE-RSA-AES256-GCM-SHA384, or leave it out"
            raise self._refuse("ssl.cipher.suites", message, fix)
        if suites:
            self.found["ssl.cipher.suites"] = ":".join(suites)
        self._drop("ssl.cipher.suites")

    def _login(self) -> None:
        msk = self._is_msk()  # before the names of the mechanism are dropped
        mechanism = self._mechanism() or "GSSAPI"
        if mechanism not in (*_PASSWORD_MECHANISMS, _OAUTH, MECHANISM):
            message = f"{mechanism} is not supported by the Kafka client here (librdkafka)"
            if _MECHANISM not in self.given:
                message = "is not set, which means GSSAPI (Kerberos), which the Kafka client here does not support"
            raise self._refuse(
                _MECHANISM, message, f"use one of {', '.join((*_PASSWORD_MECHANISMS, _OAUTH, MECHANISM))}"
            )
        self._drop(_MECHANISM, "sasl.mechanisms")
        self.found[_MECHANISM] = mechanism
        if msk:
            self._msk(mechanism)
        elif mechanism == _OAUTH:
            self._oauth()
        else:
            self._password(mechanism)
        self._drop("sasl.jaas.config")

    def _mechanism(self) -> str:
        return self._take(_MECHANISM) or self._take("sasl.mechanisms")

    def _is_msk(self) -> bool:
        """True for Amazon's login by IAM: its own mechanism, or OAUTHBEARER with its handler."""
        return self._mechanism() == MECHANISM or self._oauth_of_msk

    def _msk(self, mechanism: str) -> None:
        """Translate both forms to AWS_MSK_IAM: the code that creates the client supplies tokens
        (`herdmesh.kafka.logins`).
        """
        options: dict[str, str] = {}
        if _JAAS in self.given:
            options = self._jaas((MODULE,) if mechanism == MECHANISM else (_OAUTH_MODULE, MODULE))
        try:
            MskLogin.of(options)
        except ConfigError as error:
            raise self._refuse(_JAAS if error.field else _MECHANISM, str(error), error.fix) from None
        self.found[_MECHANISM] = MECHANISM
        if _JAAS in self.given:
            self.found[_JAAS] = self._take(_JAAS)

    def _password(self, mechanism: str) -> None:
        self.given = {name: one for name, one in self.given.items() if not name.startswith("sasl.oauthbearer.")}
        if "sasl.jaas.config" not in self.given:
            if "sasl.username" not in self.given:
                missing = f'"{_PASSWORD_MODULES[mechanism != "PLAIN"]} required username=\\"...\\" password=\\"...\\";"'
                raise self._refuse("sasl.jaas.config", f"is missing, and {mechanism} needs it", f"write {missing}")
            return
        options = self._jaas(_PASSWORD_MODULES)
        if options.get("tokenauth", "").lower() == "true":
            message = "delegation tokens (tokenauth) are not supported by the Kafka client here (librdkafka)"
            raise self._refuse("sasl.jaas.config", message, "log in with a user's own name and password")
        for option in ("username", "password"):
            if not options.get(option):
                raise self._refuse("sasl.jaas.config", f"has no {option}", f'add {option}="..." before the semicolon')
            self.found[f"sasl.{option}"] = options[option]

    def _oauth(self) -> None:
        endpoint, method = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.method"
        if method not in self.given:
            if not self._take(endpoint).startswith(("http://", "https://")):
                message = "must be an http(s) URL: tokens without a signature, or from a file, are not supported"
                raise self._refuse(endpoint, message, "write the token endpoint of the identity provider")
            self.found[method] = "oidc"
        if self._take("sasl.oauthbearer.header.urlencode").lower() == "true":
            message = "the Kafka client here (librdkafka) sends the credentials without URL encoding"
            raise self._refuse("sasl.oauthbearer.header.urlencode", message, "write false, or leave it out")
        self._drop("sasl.oauthbearer.header.urlencode")
        if (template := self.given.pop("sasl.oauthbearer.assertion.template.file", None)) is not None:
            self.found["sasl.oauthbearer.assertion.jwt.template.file"] = template.value
        if "sasl.jaas.config" not in self.given:
            return
        options = self._jaas((_OAUTH_MODULE,))
        for option, name in (("clientId", "client.id"), ("clientSecret", "client.secret"), ("scope", "scope")):
            if options.get(option):
                self.found[f"sasl.oauthbearer.{name}"] = options[option]
        extensions = [f"{name[10:]}={value}" for name, value in options.items() if name.startswith("extension_")]
        if extensions:
            self.found["sasl.oauthbearer.extensions"] = ",".join(extensions)

    def _jaas(self, modules: tuple[str, ...]) -> dict[str, str]:
        """The options of the one login module of `sasl.jaas.config`; no error message contains its text."""
        name = "sasl.jaas.config"
        try:
            module, options = parse_jaas(self._take(name))
        except ValueError as error:
            raise self._refuse(name, str(error), f'write `{modules[0]} required name="value" ...;`') from None
        if module not in modules:
            message = f"the Kafka client here (librdkafka) does not support {module} with this sasl.mechanism"
            raise self._refuse(name, message, f"use {' or '.join(modules)}")
        return options

    def _rest(self) -> None:
        for name, one in self.given.items():
            if name in (PROTOCOL, "ssl.client.auth"):  # the second is a server setting
                continue
            if name in _JAVA_ONLY or name.startswith(_JAVA_ONLY_PREFIXES):
                self.ignored.append(one.full_name)
            elif one.value:
                self.found[name] = one.value
