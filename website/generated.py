"""All pages and pictures that are generated from code. Owns the list; each module owns the form of its pages."""

from __future__ import annotations

from website import command_pages, grpc_pages, pictures, settings_pages


def generated() -> dict[str, str]:
    """Path below the repository -> text."""
    return {**command_pages.pages(), **settings_pages.pages(), **grpc_pages.pages(), **pictures.pictures()}
