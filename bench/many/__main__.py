"""Many connectors from files: `herd apply -f` and `herd delete -f` beside Java Connect 4.3.1, on one broker in one run.

    make bench-many
    make bench-many ARGS="--sizes 10,20 --idle-s 3"

Prints a table for each size: figure, ours, Java's, ratio ours / Java's (lower is better); then what each kind of
process used. Run it alone: the ratios cancel the machine's own speed, not another load on it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from bench.herder.figures import FULL, QUICK
from bench.many.clusters import JavaMany, Many, OurMany
from bench.many.figures import Answers, ask, kinds_table, rows
from bench.sides import JavaSide, OurSide, Side
from bench.table import table
from bench.warm_broker import warm_broker

_WORKERS = 2
_FEW = 50
"""Numbers of connectors up to this show whether it runs, not how fast: the broker is warmed for a short time."""


async def main(sizes: list[int], idle_s: float, *, with_java: bool) -> None:
    """Measure both sides and print the tables."""
    with tempfile.TemporaryDirectory(prefix="herdmesh-bench-many-") as name:
        folder = Path(name)
        async with warm_broker(folder / "kafka", FULL if max(sizes) > _FEW else QUICK) as broker:
            ours = OurSide(broker, folder / "stack", _WORKERS)
            mine = await _measure(ours, OurMany(ours, broker), folder / "ours", sizes, idle_s)
            theirs: dict[int, Answers] = {}
            if with_java:
                java = JavaSide(broker, folder, _WORKERS)
                theirs = await _measure(java, JavaMany(java, broker), folder / "theirs", sizes, idle_s)
    for size in sizes:
        print(f"\n{size} connectors\n{table(rows(mine[size], theirs.get(size)))}")
        print(f"\n{kinds_table(mine[size], theirs.get(size))}", flush=True)


async def _measure(side: Side, many: Many, folder: Path, sizes: list[int], idle_s: float) -> dict[int, Answers]:
    await asyncio.to_thread(folder.mkdir)
    await side.start()
    try:
        found: dict[int, Answers] = {}
        for size in sizes:
            found[size] = await ask(many, folder, size, idle_s, _say)
        return found
    finally:
        await side.stop()


def _say(line: str) -> None:
    print(f"{line} (load {os.getloadavg()[0]:.1f})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.many", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="50,500,1000", help="numbers of connectors, comma separated")
    parser.add_argument("--idle-s", type=float, default=30.0, help="seconds for which idle connectors are measured")
    parser.add_argument("--no-java", action="store_true", help="only Herdmesh")
    options = parser.parse_args()
    asyncio.run(main([int(one) for one in options.sizes.split(",")], options.idle_s, with_java=not options.no_java))
