"""What the compiled lane serves, and what it must leave to the Python path: policy, of which `pocketmq.lane` has none."""

from collections.abc import Callable
from typing import Any

from pocketmq.broker.lane.pulls import OrdinaryPulls
from pocketmq.broker.lane.sends import OrdinarySends
from pocketmq.broker.services import Services
from pocketmq.remoting.command import Buffer
from pocketmq.remoting.server import Channel


def lane_of(services: Services, compiled: Any, frame_size_max: int, header_size_max: int) -> Callable[..., int]:
    """Return the function that serves the first requests of a read (`Channels.lane`). `compiled` is the compiled module; the
    sizes are the limits of a frame and of its header."""
    serve_sends = OrdinarySends(services, compiled.Lane, frame_size_max, header_size_max).serve
    serve_pulls = OrdinaryPulls(services, compiled.Pulls, header_size_max).serve

    def serve(channel: Channel, data: bytes, out: list[Buffer]) -> int:
        serve_requests = serve_pulls if data.startswith(b'{"code":11,', 8) else serve_sends
        return serve_requests(channel, data, out)

    return serve
