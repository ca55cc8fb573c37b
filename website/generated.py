"""All pages and pictures that are generated from code. Owns the list; each module owns the form of its pages."""

from __future__ import annotations

from website import command_pages, doctor_page, example_pages, grpc_pages, pictures, settings_pages


def generated() -> dict[str, str]:
    """Path below the repository -> text."""
    modules = (command_pages, doctor_page, settings_pages, grpc_pages, example_pages)
    return {**{path: text for one in modules for path, text in one.pages().items()}, **pictures.pictures()}
