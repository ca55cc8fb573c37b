"""The two stores against Java Connect's, on one broker in one run: `python -m bench.stores`."""
