"""Generator of docs/reference/client-settings.md from the table of settings: `python -m
libs.core.tests.connect.clients.client_settings_page` writes it.

Owns the page's words. `herdmesh.connect.clients.librdkafka_settings` owns the meaning of a setting; logins and
encryption have code and no table, so the page describes that code, and a test checks it against the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from herdmesh.connect.clients.client_overrides import CLIENTS, client_keys
from herdmesh.connect.clients.client_security import is_access
from herdmesh.connect.clients.librdkafka_settings import Engine, Fixed, Meaningless, Passed, meaning

PAGE = Path(__file__).parents[5] / "docs" / "reference" / "client-settings.md"


def java_names(client: str) -> Iterator[str]:
    """Kafka 4.3's settings of that client that the table must have."""
    return (name for name in sorted(client_keys(client).keys) if not is_access(name))


def _words(client: str, name: str) -> str:
    match meaning(client, name):
        case Passed(names=names, least=least, most=most, unit=unit):
            target = " and ".join(f"`{one}`" for one in names) or "passed on unchanged"
            bounds = "" if least is None or most is None else f", {least * unit:,} to {most * unit:,}"
            return f"{target}{bounds}{f', in units of {unit}' if unit != 1 else ''}"
        case Fixed(why, same):
            return f"fixed{f' (`{same[0]}`)' if same else ''}: {why}"
        case Engine(what):
            return f"read by Herdmesh: {what}"
        case Meaningless(why):
            return f"no effect: {why}"
        case None:
            raise LookupError(f"{client}: {name} has no row")


def page() -> str:
    """The text of docs/reference/client-settings.md."""
    lines = _HEAD_TEXT.splitlines()
    for client in CLIENTS:
        lines += ["", f"## {client.capitalize()}", "", "| Java's name | Here |", "|---|---|"]
        lines += [f"| `{name}` | {_words(client, name)} |" for name in java_names(client)]
    return "\n".join([*lines, "", *_TAIL_TEXT.splitlines(), ""])


_HEAD_TEXT = """\
# Kafka client settings

Written by `python -m libs.core.tests.connect.clients.client_settings_page` from
`herdmesh.connect.clients.librdkafka_settings`; a test compares.

A worker's `consumer.`, `producer.` and `admin.` settings, and a connector's `consumer.override.`, `producer.override.`
and `admin.override.` over them (as far as `connector.client.config.override.policy` lets it), have Java's names.
Herdmesh's clients are librdkafka's: each setting of Kafka 4.3 is given to librdkafka under the name below, is read by
Herdmesh itself, or has no effect. A setting without an effect, out of librdkafka's bounds, or with an unknown name is a
warning of `herd validate`, `herd plan`, `herd create` and `herd apply`, and in the task's log when a run begins; it is
never an error, so that a config written for Java's workers can be used unchanged. A value with which no client can be
created (`auto.offset.reset=bogus`, `max.poll.interval.ms=-1`, an empty `group.id`) is refused by the same commands,
also below a mirror's prefixes (`source.consumer.`, `target.admin.`, ...), and when a worker with it starts.
librdkafka's own names are passed on unchanged."""
_TAIL_TEXT = """\
## Logins and encryption

`security.protocol`, `sasl.*` and `ssl.*` are translated as a whole, for all three clients alike. A worker's properties
for them without a prefix apply to a task's clients too, unless a prefix overrides them; in Connect they apply to admin
clients alone. A task's clients use none of a worker's other properties without a prefix, where Connect's admin clients
use all.

| Java's name | Here |
|---|---|
| `ssl.truststore.location`, `.certificates` (type `PEM`) | `ssl.ca.location`, `ssl.ca.pem` |
| `ssl.keystore.location` (type `PEM` or `PKCS12`), `.key`, `.certificate.chain` | `ssl.key.*`, `ssl.certificate.*` |
| `sasl.mechanism` | `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM`; others are errors |
| `sasl.jaas.config` | `sasl.username` and `sasl.password`, or `sasl.oauthbearer.*` |
| stores of type `JKS`, classes of your own | errors with the way to convert them |
| settings that only tune Java's own code (`ssl.protocol`, `sasl.login.refresh.*`, `sasl.kerberos.*`, ...) | a warning |

### Amazon MSK with IAM

Needs `pip install "herdmesh-core[msk-iam]"` on the workers' machines, and on the stores' machines if stores log in this
way. A config written for Java works unchanged, and so do the stores' `kafka_client_configs`, with the same names:

```properties
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
```

`sasl.mechanism=OAUTHBEARER` with `IAMOAuthBearerLoginCallbackHandler` as `sasl.login.callback.handler.class` means the
same. Options of the module: `awsProfileName`, `awsRoleArn`, `awsRoleSessionName`, `awsRoleExternalId`,
`awsRoleAccessKeyId`, `awsRoleSecretAccessKey`, `awsRoleSessionToken`, `awsStsRegion`, `awsDebugCreds` (without a role
or profile); `awsMaxRetries` and `awsMaxBackOffTimeMs` have no effect. Without any, the credentials come from botocore:
environment, profile, the role of a pod or machine. The region is taken from the brokers' names, otherwise from
`AWS_REGION`. The client logs in as OAUTHBEARER with a signed request as its token, which lives for 15 minutes; its own
thread fetches the next one after 12. Creating a client takes a second longer. Missing credentials are BAD_CONFIG; if
AWS cannot be reached, the login is retried. SparkStreamSource with the format kafka uses Spark's own client: give it
the same settings as `spark.option.kafka.*`, and put Amazon's jar on the class path of Spark.

Tested: a token by SigV4's rules; profile, role (moto's STS) and environment; producer, consumer and admin client
against a Kafka broker with its own check of tokens, across several tokens. Not tested: MSK itself."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
