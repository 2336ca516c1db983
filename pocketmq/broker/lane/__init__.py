"""Policy of the compiled lane, which itself has none: the requests that it serves, and those left to the Python path."""

from typing import Any

from pocketmq.broker.lane.pulls import OrdinaryPulls
from pocketmq.broker.lane.sends import OrdinarySends
from pocketmq.broker.services import Services
from pocketmq.remoting.channels import Lane


def lane_of(services: Services, compiled: Any, frame_size_max: int, header_size_max: int) -> Lane:
    """Return the function that serves the first requests of a read. `compiled` is the compiled module; the sizes are the
    limits of a frame and of its header."""
    serve_pulls = OrdinaryPulls(services, compiled.Pulls, header_size_max).serve
    return OrdinarySends(services, compiled.Lane, frame_size_max, header_size_max, serve_pulls).serve
