"""Parser of `sasl.jaas.config`, equivalent to Kafka's `JaasConfig`.

Owns the syntax, not the meaning of a login module.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s=;"']+|=|;)""", re.DOTALL)


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Module and options of one JAAS entry. Raises ValueError with the texts of Kafka's `JaasConfig`."""
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError("a quote in the JAAS config is not closed")
        tokens.append(match[1])
        at = match.end()
    if not tokens or tokens[0] in "=;":
        raise ValueError("Login module not specified in JAAS config")
    if len(tokens) < 2 or tokens[1] in "=;":
        raise ValueError("Login module control flag not specified in JAAS config")
    if tokens[1].lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError(f"Invalid login module control flag '{tokens[1]}' in JAAS config")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ";":
        if at + 2 >= len(tokens) or tokens[at + 1] != "=" or tokens[at + 2] in "=;":
            raise ValueError(f"Value not specified for key '{tokens[at]}' in JAAS config")
        options[_unquoted(tokens[at])] = _unquoted(tokens[at + 2])
        at += 3
    if at == len(tokens):
        raise ValueError("JAAS config entry not terminated by semi-colon")
    if at + 1 < len(tokens):
        raise ValueError("JAAS config property contains more than one login module")
    return tokens[0], options


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL) if token[0] in "\"'" else token
