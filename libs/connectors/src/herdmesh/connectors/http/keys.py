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
    "http.proxy.host": "leave it out: requests go to the receiver itself",
    "kafka.retry.backoff.ms": "leave it out: a request is tried again by retry.backoff.ms, without end",
}
"""Unsupported keys of the Java connectors that would change the content or the target of requests."""
WITHOUT_EFFECT: Mapping[str, str] = {
    "behavior.on.error": "errors.tolerance and errors.deadletterqueue.* say what becomes of a record that is refused",
    "batch.key.pattern": "a request holds records of one partition whose URL is the same",
    "http.request.timeout.ms": f"write {TIMEOUT_S}, in seconds",
    "http.connect.timeout.ms": f"write {TIMEOUT_S}, in seconds",
    "retry.backoff.policy": "the pause between two tries is always the same",
    "reporter.bootstrap.servers": "answers of the receiver are not written to topics",
    "reporter.result.topic.name": "answers of the receiver are not written to topics",
    "reporter.error.topic.name": "use errors.deadletterqueue.topic.name",
}


def _check_statuses(key: str, value: Any) -> None:
    statuses_of(key, value)


KEYS = ConfigDef(
    ConfigKey(URL, Type.STRING, None, _HIGH,
              "Where requests go, http or https. ${topic} and ${key} in path or query stand for those of the record."),
    ConfigKey(METHOD, Type.STRING, "POST", _HIGH, "Method of the requests.",
              one_of_ignoring_case("POST", "PUT", "PATCH")),
    ConfigKey(AUTHORIZATION, Type.STRING, "none", _HIGH, "The HTTP authorization type.", one_of(*TYPES)),
    ConfigKey(STATIC, Type.PASSWORD, None, _MEDIUM, "With static: the value of the header Authorization."),
    ConfigKey(USER, Type.STRING, None, _MEDIUM, "With basic: the user."),
    ConfigKey(PASSWORD, Type.PASSWORD, None, _MEDIUM, "With basic: the password."),
    ConfigKey(TOKEN_URL, Type.STRING, None, _MEDIUM,
              "With oauth2: URL that issues access tokens (client credentials grant)."),
    ConfigKey(CLIENT_ID, Type.STRING, None, _MEDIUM, "With oauth2: the client id."),
    ConfigKey(CLIENT_SECRET, Type.PASSWORD, None, _MEDIUM, "With oauth2: the client's secret."),
    ConfigKey(TOKEN_MODE, Type.STRING, "HEADER", _LOW,
              "With oauth2: whether client id and secret go as a header (basic) or as parameters of the form.",
              one_of_ignoring_case("HEADER", "URL")),
    ConfigKey(SCOPE, Type.STRING, None, _LOW, "With oauth2: the requested scope."),
    ConfigKey(TOKEN_PROPERTY, Type.STRING, "access_token", _LOW,
              "With oauth2: the member of the response that has the token."),
    ConfigKey(CONTENT_TYPE, Type.STRING, None, _LOW, "The header Content-Type; by what is sent when it is left out."),
    ConfigKey(ADDITIONAL, Type.LIST, [], _LOW, "More headers, as name:value,name:value."),
    ConfigKey(SECRET_HEADERS, Type.PASSWORD, None, _LOW, "Headers with secret values, in the same form."),
    ConfigKey(TIMEOUT_S, Type.INT, 30, _LOW, "Timeout of the connection and of the response, in seconds.",
              at_least(1)),
    ConfigKey(BATCHING, Type.BOOLEAN, None, _HIGH,
              "Whether several records are sent in one request. Unset: when batch.max.size is set and above 1; under "
              "Aiven's class name no."),
    ConfigKey(BATCH_MAX, Type.INT, None, _MEDIUM,
              f"How many, at most; {BATCH_MAX_DEFAULT} with batching.enabled alone.", optional_between(1, 1_000_000)),
    ConfigKey(PREFIX, Type.STRING, None, _MEDIUM, r"What a batch begins with; \n, \r, \t and \\ may be in it."),
    ConfigKey(SUFFIX, Type.STRING, None, _MEDIUM,
              r"What a batch ends with; \n when it is left out, nothing under Confluent's class name."),
    ConfigKey(SEPARATOR, Type.STRING, None, _MEDIUM,
              r"What is between two records; \n when it is left out, a comma under Confluent's class name."),
    ConfigKey(AS_ARRAY, Type.BOOLEAN, False, _MEDIUM, "Whether a batch is one JSON array: `[`, `,` and `]`."),
    ConfigKey(SPLIT, Type.BOOLEAN, True, _MEDIUM,
              "Whether a refused batch is sent again in halves to find the record that is refused."),
    ConfigKey(FORMAT, Type.STRING, None, _MEDIUM,
              "string: text and bytes as they are, all else as JSON. json: each value as JSON, a text in quotes. When "
              "it is unset: as string, unless batch.json.as.array is true.", optional_one_of("json", "string")),
    ConfigKey(COMPRESSION, Type.STRING, "none", _LOW, "Of request bodies.", one_of("none", "gzip")),
    ConfigKey(RETRIES, Type.INT, 10, _MEDIUM,
              "Maximum retries of a request; then the commit that waits for it fails the run.", at_least(0)),
    ConfigKey(BACKOFF_MS, Type.INT, 3_000, _MEDIUM,
              "Wait before a retry, in milliseconds; longer if the receiver requests it (Retry-After).",
              at_least(0)),
    ConfigKey(RETRY_ON, Type.STRING, "408,425,429,500-", _LOW,
              "Statuses that are tried again, as 429,500-599 or 500-. Other statuses from 400 refuse the records.",
              Validator("statuses and ranges of them", _check_statuses)),
    ConfigKey(ON_NULL, Type.STRING, "ignore", _LOW,
              "What becomes of a record without a value. delete: a DELETE request to the URL, which has ${key} in it.",
              one_of("ignore", "delete", "fail")),
    ConfigKey(CONNECTIONS, Type.INT, 4, _LOW,
              "Requests of one task at the same time; those of one partition always go one after the other.",
              all_of(at_least(1), optional_between(1, _CONNECTIONS_MAX))),
    ConfigKey(TRUSTED, Type.STRING, "", _LOW,
              "A PEM file with the authorities that are trusted; the system's without it."),
    ConfigKey(OWN_KEY, Type.STRING, "", _LOW, "A PEM file with the client's own key and its certificates."),
    ConfigKey(OWN_KEY_PASSWORD, Type.PASSWORD, "", _LOW, "The password of the client's own key."),
    ConfigKey(CHECK_HOST, Type.STRING, "https", _LOW,
              "https: the receiver's certificate must be of its host's name. Empty: any host's will do.",
              one_of("https", "")),
    *(ConfigKey(theirs, Type.PASSWORD if ours == PASSWORD else Type.STRING, None, _LOW, f"Confluent's name of {ours}.")
      for theirs, ours in SYNONYMS.items()),
)  # fmt: skip


def statuses_of(key: str, text: str | None) -> frozenset[int]:
    """Parse a list of statuses such as `429,500-599,600-`. Raises ConfigError."""
    found: set[int] = set()
    for part in (text or "").split(","):
        match = re.fullmatch(r"(\d{3})(?:(-)(\d{3})?)?", part.strip())
        if match is None or int(match[1]) < 400:
            raise ConfigError.for_value(key, text, f"'{part.strip()}' is no status from 400", fix="write 408,429,500-")
        last = int(match[3]) if match[3] else 999 if match[2] else int(match[1])
        found.update(range(int(match[1]), last + 1))
    return frozenset(found)
