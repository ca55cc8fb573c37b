"""The control plane at 100 to 1,500 connectors: time, memory and threads, and the law by which each grows."""
