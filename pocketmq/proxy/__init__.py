"""The gRPC front: RocketMQ 5's clients, served in a broker's process or, as `mqproxy`, before any brokers.

Each call becomes requests of the remoting protocol, sent in the client's name over a connection of its own to each broker.
"""

from importlib.util import find_spec


def is_installed() -> bool:
    """Return whether the library for its messages, protobuf, is installed."""
    return find_spec("google") is not None and find_spec("google.protobuf") is not None
