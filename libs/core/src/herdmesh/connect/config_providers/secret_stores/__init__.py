"""Secret stores as config providers: HashiCorp Vault, AWS Secrets Manager, GCP Secret Manager, Azure Key Vault.

Owns the class for each Java name. The classes are imported when a worker's properties name one, and the client
libraries of the stores (extras of this distribution) when it is configured: a worker that uses none needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from herdmesh.connect.config_providers.base import ConfigProvider

_OF_CUSTENBORDER = "com.github.jcustenborder.kafka.config."
_OF_CONFLUENT = "io.confluent.csid.config.provider."
_OF_LENSES = "io.lenses.connect.secrets.providers."
#: Module in this package and class, by Java's full name and its aliases.
JAVA_NAMES: Mapping[str, tuple[str, str]] = {
    name: (module, cls)
    for module, cls, names in (
        (
            "vault",
            "VaultConfigProvider",
            (
                f"{_OF_CUSTENBORDER}vault.VaultConfigProvider",
                f"{_OF_CONFLUENT}vault.VaultConfigProvider",
                f"{_OF_LENSES}VaultSecretProvider",
                *("VaultConfigProvider", "VaultSecretProvider", "Vault"),
            ),
        ),
        (
            "aws",
            "SecretsManagerConfigProvider",
            (
                f"{_OF_CONFLUENT}aws.SecretsManagerConfigProvider",
                f"{_OF_LENSES}AWSSecretProvider",
                "com.amazonaws.kafka.config.providers.SecretsManagerConfigProvider",
                *("SecretsManagerConfigProvider", "AWSSecretProvider", "SecretsManager"),
            ),
        ),
        (
            "aws",
            "FolderedSecretsManagerConfigProvider",
            (f"{_OF_CUSTENBORDER}aws.SecretsManagerConfigProvider",),
        ),
        (
            "gcloud",
            "SecretManagerConfigProvider",
            (
                f"{_OF_CUSTENBORDER}gcloud.SecretManagerConfigProvider",
                f"{_OF_CONFLUENT}gcloud.SecretManagerConfigProvider",
                *("SecretManagerConfigProvider", "SecretManager"),
            ),
        ),
        (
            "azure",
            "KeyVaultConfigProvider",
            (
                f"{_OF_CUSTENBORDER}azure.KeyVaultConfigProvider",
                f"{_OF_CONFLUENT}azure.KeyVaultConfigProvider",
                *("KeyVaultConfigProvider", "KeyVault"),
            ),
        ),
        (
            "azure",
            "AzureSecretProvider",
            (f"{_OF_LENSES}AzureSecretProvider", "AzureSecretProvider"),
        ),
    )
    for name in names
}
SHORT_NAMES = ("Vault", "SecretsManager", "SecretManager", "KeyVault", "AzureSecretProvider")
"""One alias of each class, for messages."""


def secret_store(name: str) -> type[ConfigProvider] | None:
    """The class for a Java name or an alias; None = the name is none of these."""
    if name not in JAVA_NAMES:
        return None
    module, cls = JAVA_NAMES[name]
    return cast("type[ConfigProvider]", getattr(import_module(f"{__name__}.{module}"), cls))
