"""The documentation site (`make docs`): which pages it has, the pages generated from code, and how it is built."""
