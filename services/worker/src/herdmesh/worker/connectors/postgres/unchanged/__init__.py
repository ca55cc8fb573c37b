"""Values of PostgreSQL that an update did not touch and the server did not send: what stands for them, on both ends."""
