"""What may leave a process: texts without the secrets that were resolved in it.

Owns the secrets of this process and their replacement. Everything that speaks to the outside asks `redacted`: failures,
traces, log lines, answers. Does not know where a secret comes from (`config_providers`, a run's order).

Invariant: once `keep_secret` has returned, no text that went through `redacted` contains the secret.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from typing import Any, Final, cast

HIDDEN: Final = "***"
#: Shorter values are found in every text, and hiding them would make nonsense of it.
LENGTH_MIN: Final = 4


class Secrets:
    """Values and how to hide them. Only ever grows: a text about an old value may be on its way still."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def keep(self, values: Iterable[str]) -> None:
        """From now on these are hidden."""
        wanted = {value for value in values if len(value) >= LENGTH_MIN}
        with self._lock:
            if wanted <= self._known:
                return
            self._known |= wanted
            forms = {form for value in self._known for form in _forms(value)}
            self._pattern = re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))

    def hidden_in(self, text: str) -> str:
        """The text with `***` for each of them."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)


_secrets = Secrets()


def keep_secret(values: Iterable[str]) -> None:
    """From now on this process hides them. Values of less than 4 characters are not hidden."""
    _secrets.keep(values)


def redacted(text: str) -> str:
    """The text with `***` for every secret in it."""
    return _secrets.hidden_in(text)


def redacted_value(value: Any) -> Any:
    """A log line's value: texts in lists and dicts too; what is no text is judged by what it would be shown as."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: redacted_value(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [redacted_value(one) for one in cast("list[Any]", value)]
    shown = str(value)
    hidden = redacted(shown)
    return value if hidden == shown else hidden


def _forms(value: str) -> set[str]:
    """How a value may stand in a text: as it is, in quotes of JSON or Python, on one line, each of its long lines."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    forms |= {" ".join(value.split()), value.strip()}
    if "\n" in value:
        forms |= {line.strip() for line in value.splitlines()}
    return {form for form in forms if len(form) >= LENGTH_MIN}
