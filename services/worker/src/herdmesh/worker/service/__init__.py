"""The two gRPC services of a worker. They translate messages and decide nothing."""
