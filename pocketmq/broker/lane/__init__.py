"""Policy of the compiled lane, which itself has none: the requests that it serves, and those left to the Python path."""

from typing import Any

from pocketmq.broker.lane.copies import OrdinaryCopies
from pocketmq.broker.lane.pulls import OrdinaryPulls
from pocketmq.broker.lane.sends import OrdinarySends
from pocketmq.broker.lane.sockets import LaneSockets
from pocketmq.broker.services import Services
from pocketmq.remoting.channels import Channels


def ordinary_sends(services: Services, compiled: Any, channels: Channels, frame_size_max: int) -> OrdinarySends:
    """Return the part that serves the first requests of a read of `channels`; `compiled` is the compiled module."""
    serve_pulls = OrdinaryPulls(services, compiled.Pulls, channels).serve
    return OrdinarySends(services, compiled.Lane, frame_size_max, channels.header_size_max, serve_pulls)


def use_lane(channels: Channels, services: Services, compiled: Any, frame_size_max: int) -> None:
    """Let the compiled lane serve the ordinary requests of `channels`, and read and write their plain connections."""
    sends = ordinary_sends(services, compiled, channels, frame_size_max)
    channels.lane = sends.serve
    services.delays.sink.put_together = OrdinaryCopies(services, sends).put
    if hasattr(compiled, "Sockets"):  # only on Linux
        channels.use(LaneSockets(sends.serve_ready, compiled.Sockets, services.turn, services.clock))
