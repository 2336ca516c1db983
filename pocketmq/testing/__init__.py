"""Servers for tests, and networks in which tests cut brokers off."""

from pocketmq.testing.server import PocketMQ

__all__ = ["PocketMQ"]
