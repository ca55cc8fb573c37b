"""The two stores against Java Connect 4.3.1's KafkaConfigBackingStore and KafkaStatusBackingStore, on one broker.

    make bench-stores
    make bench-stores ARGS="--quick"
    make bench-stores ARGS="--only replay,memory"

Prints a table: figure, ours, Java's, ratio ours / Java's, goal, met or not. The ratios cancel the machine's own speed,
not another load on it: run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.stores.figures import FIGURES, FULL, QUICK, Bench
from bench.stores.java import JavaStores
from bench.table import Row, table
from herdmesh.devstack.broker import Broker


async def main(only: Sequence[str], *, quick: bool) -> list[Row]:
    """Measure and return all rows, in order."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-stores-") as name:
        folder = Path(name)
        broker = Broker(folder / "kafka", port=0)
        await broker.start()
        try:
            classes = folder / "classes"
            classes.mkdir()
            bench = Bench(broker.bootstrap, JavaStores(classes, broker.bootstrap), folder, QUICK if quick else FULL)
            for figure in only:
                print(f"measuring: {figure}", flush=True)
                found = await FIGURES[figure](bench)
                rows += found
                print(table(found), end="\n\n", flush=True)  # a run takes minutes; print the rows known so far
        finally:
            await broker.stop()
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.stores", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast")
    parser.add_argument("--only", default=",".join(FIGURES), help=f"comma separated, of: {', '.join(FIGURES)}")
    options = parser.parse_args()
    print(table(asyncio.run(main(options.only.split(","), quick=options.quick))), flush=True)
