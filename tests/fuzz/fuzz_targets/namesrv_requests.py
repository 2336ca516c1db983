"""Target: whole requests to a name server, in which the route of a registered broker must not change."""

import logging
from typing import Any

from pocketmq.namesrv.config import UPDATE_RULES, NamesrvConfig
from pocketmq.namesrv.handlers import ROUTES, NamesrvServices
from pocketmq.namesrv.kv_config import KVConfigManager
from pocketmq.namesrv.route_info import RouteInfoManager
from pocketmq.remoting.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, encode_body
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import decode_header, encode_request
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.frame import FrameBuffer, FrameError
from pocketmq.remoting.headers.route import RegisterBrokerRequestHeader
from pocketmq.remoting.headers.topic import GetRouteInfoRequestHeader
from pocketmq.runtime.config_updates import ConfigUpdates
from tests.fuzz.fuzz_mutators import grow_frames, mutate_frames
from tests.fuzz.fuzz_oracle import Target, Wrong
from tests.fuzz.fuzz_targets.broker_requests import FRAMES_MAX, LogWatch, too_long_remarks, watch_log
from tests.fuzz.fuzz_targets.wire import declared_frames, recorded_frames
from tests.namesrv.namesrv_doubles import Connection, LivenessClock

VICTIM = "victim_7Qz"
INPUTS_PER_SERVER = 2_000


class Peer(Connection):
    """Stub connection of a client."""

    remote_host, remote_port, remote_address, is_open = "127.0.0.1", 40000, "127.0.0.1:40000", True

    def response_received(self, command: Any) -> None:
        """Ignore the response: this side has sent no request."""


class Attack:
    """Sends inputs to one name server after another."""

    def __init__(self) -> None:
        self.log: LogWatch = watch_log()
        logging.getLogger("namesrv").setLevel(logging.INFO)
        self._begin()

    def _begin(self) -> None:
        clock = LivenessClock()
        config = NamesrvConfig(kv_config_path="")
        updates = ConfigUpdates([config], UPDATE_RULES, None, None)
        services = NamesrvServices(config, RouteInfoManager(clock), KVConfigManager(config), updates)
        self.dispatcher = Dispatcher(services, ROUTES)
        self.inputs, self.hostile, self.broker = 0, Peer(), Peer()
        table = TopicConfigSerializeWrapper({VICTIM: TopicConfig(VICTIM, 4, 4)})
        header = RegisterBrokerRequestHeader(
            broker_name=f"{VICTIM}b", broker_addr="10.9.8.7:1", cluster_name=f"{VICTIM}c", ha_server_addr="10.9.8.7:2",
            broker_id=0
        )  # fmt: skip
        self._ask(self.broker, RequestCode.REGISTER_BROKER, header, encode_body(RegisterBrokerBody(table)))
        self.route = self._route()

    def _ask(self, channel: Peer, code: int, header: Any, body: bytes = b"") -> tuple[int, bytes]:
        out: list[Any] = []
        for frame in FrameBuffer().feed(b"".join(encode_request(code, header, body, 1))):
            self.dispatcher.serve(channel, frame, out)
        ((kind, head, answer),) = FrameBuffer().feed(b"".join(map(bytes, out)))
        return decode_header(kind, head).code, answer

    def _route(self) -> tuple[int, bytes]:
        return self._ask(self.broker, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(VICTIM))

    def __call__(self, data: bytes) -> None:
        self.inputs += 1
        if self.inputs > INPUTS_PER_SERVER:
            self._begin()
        out: list[Any] = []
        try:
            for frame in FrameBuffer().feed(data)[:FRAMES_MAX]:
                self.dispatcher.serve(self.hostile, frame, out)
        except FrameError:
            self.hostile.close()
            self.hostile = Peer()
        self.log.take()
        problem = next(too_long_remarks(out), None)
        route = self._route()
        if route != self.route and not _may_change_order(data):
            self._begin()
            raise Wrong(f"the route of another broker's topic is {route} now")
        if problem:
            raise Wrong(problem)


def _may_change_order(data: bytes) -> bool:
    """Return whether the request names the topic, or all topics."""
    return VICTIM.encode() in data or b"ORDER" in data or b"orderMessage" in data


def _seeds() -> list[bytes]:
    from tests.fuzz.fuzz_mutators import join_frames, split_frames
    from tests.fuzz.fuzz_targets.bodies import _register_seeds

    seeds = [frame for code, frames in recorded_frames().items() if code in ROUTES for frame in frames]
    seeds += declared_frames(ROUTES)  # type: ignore[arg-type]
    for frame in declared_frames(ROUTES):  # type: ignore[arg-type]
        ((kind, header, _),) = split_frames(frame)
        if header.startswith(b'{"code":103,'):
            for body in _register_seeds():
                header = header.replace(b'"bodyCrc32":"1"', b'"bodyCrc32":"0"')
                compressed = b'"true"' if body[0] & 1 else b'"false"'
                seeds.append(
                    join_frames([(kind, header.replace(b'"compressed":"true"', b'"compressed":' + compressed), body[1:])])
                )
    return seeds


TARGETS = (
    Target(
        "namesrv_requests", Attack, _seeds, (), mutate_frames, grow_frames, ns_per_byte=20_000, size_max=4_096, weight=1.5
    ),
)
