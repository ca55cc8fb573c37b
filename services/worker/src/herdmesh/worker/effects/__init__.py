"""Effects of a worker on the outside world."""
