"""Commands that show what the mesh does over time: `herd logs`, `herd events`, `herd top`."""
