"""Builder of the documentation site and of the pages that are generated from code.

    python -m website            build/website/site, with strict links; exit 1 and the reason when a link leads nowhere
    python -m website --pages    write docs/reference/{cli,errors,...}.md, docs/reference/grpc/ and the pictures

Owns the order of the build. The list of pages and the translation of their links are in `staging`. The site generator
is Zensical, the successor of mkdocs-material, whose maintenance ended in November 2026.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from website.staging import Staging, contents

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "website"
_MERMAID = ROOT / ".venv" / "npm" / "node_modules" / "mermaid" / "dist" / "mermaid.min.js"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m website", description="Build the documentation site.")
    parser.add_argument("--pages", action="store_true", help="only write the generated pages into docs/")
    return write_pages() if parser.parse_args().pages else build()


def write_pages() -> int:
    """Write the pages that are generated from code."""
    from website.generated import generated

    for path, text in generated().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(f"wrote {path}")
    return 0


def build() -> int:
    """Copy the pages and build the site; 1 and the reasons on standard error when a link or the contents are wrong."""
    shutil.rmtree(BUILD, ignore_errors=True)
    staging = Staging(ROOT, BUILD / "docs")
    pages = staging.copy()
    try:
        configuration = contents((ROOT / "website" / "zensical.toml").read_text(), pages)
    except ValueError as error:
        staging.problems.append(str(error))
        configuration = ""
    if staging.problems:
        print("the site was not built:", *staging.problems, sep="\n  ", file=sys.stderr)
        return 1
    (BUILD / "zensical.toml").write_text(configuration)
    (BUILD / "docs" / "assets").mkdir(exist_ok=True)
    shutil.copyfile(_MERMAID, BUILD / "docs" / "assets" / "mermaid.min.js")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=BUILD, stderr=subprocess.PIPE, text=True, check=False)
    # the error comes first; Zensical ends a strict build with a traceback of its own
    print(done.stderr.partition("Traceback (most recent call last):")[0], end="", file=sys.stderr)
    if done.returncode == 0:
        print(f"{len(pages)} pages: {(BUILD / 'site' / 'index.html').relative_to(ROOT)}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
