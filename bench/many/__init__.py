"""Many connectors from files, beside Java Connect's: see `__main__.py`."""
