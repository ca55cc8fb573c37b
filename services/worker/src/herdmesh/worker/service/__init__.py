"""Wire in, wire out: the two gRPC services of a worker. They translate and decide nothing."""
