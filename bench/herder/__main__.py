"""The control plane against Java Connect 4.3.1 on one broker, in one run: waiting times of users, and the cost of
idling.

    make bench-herder
    make bench-herder ARGS="--quick"

Prints a table: figure, ours, Java's, ratio ours / Java's (lower is better). Run it alone: the ratios cancel the
machine's own speed, not another load on it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from bench.herder.figures import FULL, QUICK, Answers, Sizes, ask, rows
from bench.sides import JavaSide, OurSide, Side
from bench.table import table
from bench.warm_broker import warm_broker
from herdmesh.devstack.broker import Broker


async def main(sizes: Sizes) -> None:
    """Measure both and print the table."""
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-herder-") as name:
        folder = Path(name)
        async with warm_broker(folder / "kafka", sizes) as broker:
            ours = await _measure(OurSide(broker, folder / "stack", 2), broker, folder / "ours", sizes)
            java = await _measure(JavaSide(broker, folder, 2), broker, folder / "theirs", sizes)
    print(table(rows(ours, java, sizes)), flush=True)


async def _measure(side: Side, broker: Broker, folder: Path, sizes: Sizes) -> Answers:
    await asyncio.to_thread(folder.mkdir)
    await side.start()
    try:
        return await ask(side, broker.bootstrap, folder, sizes, lambda line: print(line, flush=True))
    finally:
        await side.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.herder", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run, not how fast")
    options = parser.parse_args()
    asyncio.run(main(QUICK if options.quick else FULL))
