"""The herder side by side with Java Connect's: see `__main__.py`."""
