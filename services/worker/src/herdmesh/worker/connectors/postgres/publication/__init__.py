"""The publication that a CDC source takes its changes from: what is to be in it, and making it."""
