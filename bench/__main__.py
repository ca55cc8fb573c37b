"""`make bench`: the records, side by side with Java Connect; see `bench.records`."""

from __future__ import annotations

from bench.records.__main__ import run

run()
