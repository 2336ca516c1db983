"""Fixture: the name server's request handlers without a socket."""

from types import SimpleNamespace

import pytest

from pocketmq.namesrv.config import UPDATE_RULES, NamesrvConfig
from pocketmq.namesrv.handlers import ROUTES, NamesrvServices
from pocketmq.namesrv.kv_config import KVConfigManager
from pocketmq.namesrv.route_info import RouteInfoManager
from pocketmq.remoting.command import decode_header, encode_request
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.frame import FrameBuffer
from pocketmq.runtime.config_updates import ConfigUpdates
from tests.namesrv.namesrv_doubles import Connection, LivenessClock


@pytest.fixture
def namesrv():
    """Return `ask(code, header, body, version=, connection=)`, which returns the answer with its body, and the parts."""
    clock, changed = LivenessClock(), []
    config = NamesrvConfig(kv_config_path="")
    updates = ConfigUpdates([config], UPDATE_RULES, None, None)
    updates.applied = lambda values, _: changed.append(values)
    services = NamesrvServices(config, RouteInfoManager(clock), KVConfigManager(config), updates)
    dispatcher = Dispatcher(services, ROUTES)
    ours = Connection()

    def serve(frame, connection=ours):
        out = []
        (request,) = FrameBuffer().feed(frame)
        dispatcher.serve(connection, request, out)
        if not out:
            return None
        ((kind, header, body),) = FrameBuffer().feed(b"".join(out))
        answer = decode_header(kind, header)
        answer.body = body
        return answer

    def ask(code, header=None, body=b"", version=401, connection=ours):
        frame = b"".join(encode_request(code, header, body, 1)).replace(b'"version":401', b'"version":%3d' % version)
        return serve(frame, connection)

    return SimpleNamespace(
        ask=ask, serve=serve, services=services, routes=services.routes, clock=clock, changed=changed, connection=Connection
    )
