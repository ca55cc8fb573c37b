"""Converters, transformations and tasks alone, each in one process: this tree beside an older one."""
