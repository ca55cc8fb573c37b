"""Tables of the MariaDB server of `conftest`, for the tests of Spark's JDBC.

Owns their names and the settings with which a connector reaches them. Invariant: no two tests share a table.
"""

from __future__ import annotations

import itertools

import pytest

from tests.support import mariadb
from tests.support.mariadb import PASSWORD, USER, MariaDb

needs_mariadb = pytest.mark.skipif(mariadb.base() is None, reason=mariadb.FIX)
_numbers = itertools.count()


def options(server: MariaDb, table: str) -> dict[str, str]:
    found = {"url": server.url, "dbtable": table, "user": USER, "password": PASSWORD}
    return {f"spark.option.{name}": value for name, value in found.items()}


def fresh(name: str) -> str:
    """Return an unused table name of the server's one database."""
    return f"{name}_{next(_numbers)}"
