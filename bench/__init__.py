"""Side-by-side measurements: Herdmesh and Java Connect on one broker, in one run, as ratios."""
