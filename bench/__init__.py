"""Benchmarks: PocketMQ compared with Apache's broker on the same machine at the same time."""
