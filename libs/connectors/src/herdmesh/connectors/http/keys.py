"""Config keys of an HTTP sink: Aiven's, Confluent's with the same meaning, and Herdmesh's own.

Owns the tables of keys, and parsing lists of statuses. The settings as a whole: `settings`.

    Aiven        io.aiven.kafka.connect.http.HttpSinkConnector: http.url, http.authorization.type, batching.enabled, ...
    Confluent    io.confluent.connect.http.HttpSinkConnector: http.api.url, auth.type, ... are other names of the same

Invariant: secrets are of type PASSWORD.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from herdmesh.sdk import ConfigDef, ConfigError, ConfigKey, Importance, Type, Validator
from herdmesh.sdk.validators import all_of, at_least, one_of, one_of_ignoring_case, optional_between, optional_one_of

URL = "http.url"
METHOD = "request.method"
AUTHORIZATION = "http.authorization.type"
STATIC = "http.headers.authorization"
USER, PASSWORD = "http.authorization.user", "http.authorization.password"
TOKEN_URL, CLIENT_ID, CLIENT_SECRET = "oauth2.access.token.url", "oauth2.client.id", "oauth2.client.secret"
TOKEN_MODE, SCOPE = "oauth2.client.authorization.mode", "oauth2.client.scope"
TOKEN_PROPERTY = "oauth2.response.token.property"
CONTENT_TYPE, ADDITIONAL = "http.headers.content.type", "http.headers.additional"
SECRET_HEADERS = "http.headers.secret"
TIMEOUT_S = "http.timeout"
BATCHING, BATCH_MAX = "batching.enabled", "batch.max.size"
PREFIX, SUFFIX, SEPARATOR = "batch.prefix", "batch.suffix", "batch.separator"
AS_ARRAY, SPLIT = "batch.json.as.array", "batch.split.on.error"
FORMAT, COMPRESSION = "request.body.format", "http.compression"
RETRIES, BACKOFF_MS, RETRY_ON = "max.retries", "retry.backoff.ms", "retry.on.status.codes"
ON_NULL = "behavior.on.null.values"
CONNECTIONS = "herdmesh.http.connections"
TRUSTED = "https.ssl.truststore.location"
OWN_KEY, OWN_KEY_PASSWORD = "https.ssl.keystore.location", "https.ssl.key.password"
CHECK_HOST = "https.ssl.endpoint.identification.algorithm"

AIVENS, CONFLUENTS = "io.aiven.kafka.connect.http.HttpSinkConnector", "io.confluent.connect.http.HttpSinkConnector"
"""Class names of Aiven's and Confluent's sinks, under which their defaults for batches apply."""
BATCH_MAX_DEFAULT = 500
_CONNECTIONS_MAX = 64
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
TYPES = ("none", "static", "basic", "oauth2")

#: Confluent's name -> ours.
SYNONYMS: Mapping[str, str] = {
    "http.api.url": URL,
    "auth.type": AUTHORIZATION,
    "connection.user": USER,
    "connection.password": PASSWORD,
    "oauth2.token.url": TOKEN_URL,
}
REFUSED: Mapping[str, str] = {
    "headers": f"write them to {ADDITIONAL}, or {SECRET_HEADERS} where they are secret, as name:value,name:value",
    "regex.patterns": "use a transformation that changes the value",
    "regex.replacements": "use a transformation that changes the value",
    "http.proxy.host": "leave it out: requests go directly to the receiver",
    "kafka.retry.backoff.ms": "leave it out: requests are retried every retry.backoff.ms, without a limit",
}
"""Unsupported keys of the Java connectors that would change the content or the target of requests."""
WITHOUT_EFFECT: Mapping[str, str] = {
    "behavior.on.error": "errors.tolerance and errors.deadletterqueue.* decide about refused records",
    "batch.key.pattern": "a request holds records of one partition with the same URL",
    "http.request.timeout.ms": f"write {TIMEOUT_S}, in seconds",
    "http.connect.timeout.ms": f"write {TIMEOUT_S}, in seconds",
    "retry.backoff.policy": "the wait between two attempts is constant",
    "reporter.bootstrap.servers": "responses of the receiver are not written to topics",
    "reporter.result.topic.name": "responses of the receiver are not written to topics",
    "reporter.error.topic.name": "use errors.deadletterqueue.topic.name",
}


def _check_statuses(key: str, value: Any) -> None:
    statuses_of(key, value)


KEYS = ConfigDef(
    ConfigKey(URL, Type.STRING, None, _HIGH,
              "URL of the requests, http or https. ${topic} and ${key} in path or query are replaced by those of the "
              "record."),
    ConfigKey(METHOD, Type.STRING, "POST", _HIGH, "HTTP method of the requests.",
              one_of_ignoring_case("POST", "PUT", "PATCH")),
    ConfigKey(AUTHORIZATION, Type.STRING, "none", _HIGH, "The HTTP authorization type.", one_of(*TYPES)),
    ConfigKey(STATIC, Type.PASSWORD, None, _MEDIUM, "With static: value of the header Authorization."),
    ConfigKey(USER, Type.STRING, None, _MEDIUM, "With basic: user name."),
    ConfigKey(PASSWORD, Type.PASSWORD, None, _MEDIUM, "With basic: password."),
    ConfigKey(TOKEN_URL, Type.STRING, None, _MEDIUM,
              "With oauth2: URL that issues access tokens (client credentials grant)."),
    ConfigKey(CLIENT_ID, Type.STRING, None, _MEDIUM, "With oauth2: client id."),
    ConfigKey(CLIENT_SECRET, Type.PASSWORD, None, _MEDIUM, "With oauth2: client secret."),
    ConfigKey(TOKEN_MODE, Type.STRING, "HEADER", _LOW,
              "With oauth2: whether client id and secret are sent in a header (basic) or as form parameters.",
              one_of_ignoring_case("HEADER", "URL")),
    ConfigKey(SCOPE, Type.STRING, None, _LOW, "With oauth2: requested scope."),
    ConfigKey(TOKEN_PROPERTY, Type.STRING, "access_token", _LOW,
              "With oauth2: field of the response that has the token."),
    ConfigKey(CONTENT_TYPE, Type.STRING, None, _LOW,
              "Value of the header Content-Type; if unset, it follows from the body."),
    ConfigKey(ADDITIONAL, Type.LIST, [], _LOW, "Additional headers, as name:value,name:value."),
    ConfigKey(SECRET_HEADERS, Type.PASSWORD, None, _LOW, "Additional headers with secret values, in the same form."),
    ConfigKey(TIMEOUT_S, Type.INT, 30, _LOW, "Timeout of the connection and of the response, in seconds.",
              at_least(1)),
    ConfigKey(BATCHING, Type.BOOLEAN, None, _HIGH,
              "Whether several records are sent in one request. If unset: yes if batch.max.size is above 1; no under "
              "Aiven's class name."),
    ConfigKey(BATCH_MAX, Type.INT, None, _MEDIUM,
              f"Maximum number of records in a request; {BATCH_MAX_DEFAULT} if only batching.enabled is set.",
              optional_between(1, 1_000_000)),
    ConfigKey(PREFIX, Type.STRING, None, _MEDIUM,
              r"Text before the first record of a batch; may contain the escapes \n, \r, \t and \\."),
    ConfigKey(SUFFIX, Type.STRING, None, _MEDIUM,
              r"Text after the last record of a batch; if unset \n, or nothing under Confluent's class name."),
    ConfigKey(SEPARATOR, Type.STRING, None, _MEDIUM,
              r"Text between two records of a batch; if unset \n, or a comma under Confluent's class name."),
    ConfigKey(AS_ARRAY, Type.BOOLEAN, False, _MEDIUM, "Whether a batch is one JSON array: `[`, `,` and `]`."),
    ConfigKey(SPLIT, Type.BOOLEAN, True, _MEDIUM,
              "Whether a refused batch is sent again in halves to find the refused record."),
    ConfigKey(FORMAT, Type.STRING, None, _MEDIUM,
              "string: strings and bytes unchanged, all other values as JSON. json: each value as JSON, strings in "
              "quotes. If unset: json if batch.json.as.array is true, else string.", optional_one_of("json", "string")),
    ConfigKey(COMPRESSION, Type.STRING, "none", _LOW, "Of request bodies.", one_of("none", "gzip")),
    ConfigKey(RETRIES, Type.INT, 10, _MEDIUM,
              "Maximum number of retries of a request, after which the task's run fails.", at_least(0)),
    ConfigKey(BACKOFF_MS, Type.INT, 3_000, _MEDIUM,
              "Wait before a retry, in milliseconds; longer if the receiver requests it (Retry-After).",
              at_least(0)),
    ConfigKey(RETRY_ON, Type.STRING, "408,425,429,500-", _LOW,
              "HTTP statuses that are retried, such as 429,500-599 or 500-. Any other status from 400 refuses the "
              "records.",
              Validator("statuses and ranges of statuses", _check_statuses)),
    ConfigKey(ON_NULL, Type.STRING, "ignore", _LOW,
              "Handling of a record without a value. delete: a DELETE request to the URL, which must contain ${key}.",
              one_of("ignore", "delete", "fail")),
    ConfigKey(CONNECTIONS, Type.INT, 4, _LOW,
              "Maximum number of concurrent requests of a task; those of one partition are always sent one after the "
              "other.",
              all_of(at_least(1), optional_between(1, _CONNECTIONS_MAX))),
    ConfigKey(TRUSTED, Type.STRING, "", _LOW,
              "PEM file with the trusted authorities; if unset, the system's."),
    ConfigKey(OWN_KEY, Type.STRING, "", _LOW, "PEM file with the client's key and certificates."),
    ConfigKey(OWN_KEY_PASSWORD, Type.PASSWORD, "", _LOW, "Password of the client's key."),
    ConfigKey(CHECK_HOST, Type.STRING, "https", _LOW,
              "https: the receiver's certificate must match its host name. Empty: host names are not checked.",
              one_of("https", "")),
    *(ConfigKey(theirs, Type.PASSWORD if ours == PASSWORD else Type.STRING, None, _LOW, f"Confluent's name for {ours}.")
      for theirs, ours in SYNONYMS.items()),
)  # fmt: skip


def statuses_of(key: str, text: str | None) -> frozenset[int]:
    """Parse a list of statuses such as `429,500-599,600-`. Raises ConfigError."""
    found: set[int] = set()
    for part in (text or "").split(","):
        match = re.fullmatch(r"(\d{3})(?:(-)(\d{3})?)?", part.strip())
        if match is None or int(match[1]) < 400:
            raise ConfigError.for_value(
                key, text, f"'{part.strip()}' is not a status from 400", fix="write 408,429,500-"
            )
        last = int(match[3]) if match[3] else 999 if match[2] else int(match[1])
        found.update(range(int(match[1]), last + 1))
    return frozenset(found)
