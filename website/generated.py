"""All pages and pictures that are generated from code. Owns the list; each module owns the form of its pages."""

from __future__ import annotations

from website import command_pages, example_pages, grpc_pages, pictures, settings_pages


def generated() -> dict[str, str]:
    """Path below the repository -> text."""
    written = (command_pages.pages(), settings_pages.pages(), grpc_pages.pages(), example_pages.pages())
    return {**{path: text for pages in written for path, text in pages.items()}, **pictures.pictures()}
