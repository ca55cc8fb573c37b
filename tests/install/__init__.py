"""The release as a user gets it: wheels, an empty environment, `herd up`, connectors, `herd down` (make dist-check)."""
