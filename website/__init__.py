"""The documentation site (`make docs`): its pages, the pages generated from code, and the build."""
