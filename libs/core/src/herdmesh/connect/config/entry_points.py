"""Entry point loading, with an error that names the entry point when its code fails.

Owns the errors. The groups of entry points belong to `plugins` and `spi.custom_plugins`.

Invariant: unless the import ends or breaks the process, the caller gets the named object or an exception.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

from herdmesh.connect.errors import error_text

LeftOut = Callable[[metadata.EntryPoint, Exception], None]
"""Callback for an unusable entry point and the reason: the entry point is skipped, and the others are used."""


def loaded_entry(entry: metadata.EntryPoint) -> Any:
    """Import and return the object that the entry point names.

    Raises:
        ImportError: the value is no `module:Class`; the module cannot be imported, or does not have the class; or the
            import raised an error that is no Exception, such as SystemExit.
        Exception: any other error of the import.
    """
    named = f"entry point {entry.name} = {entry.value}" if entry.name else f"entry point {entry.value}"
    if entry.pattern.match(entry.value) is None:
        raise ImportError(f"{named} is not of the form module:Class")
    try:
        return entry.load()
    except AttributeError as error:
        raise ImportError(f"{named} cannot be loaded: {error}") from error
    except Exception:
        raise
    except BaseException as error:
        said = error_text(error)
        told = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise ImportError(f"importing {named} raised {told}: a module must not end its process") from error
