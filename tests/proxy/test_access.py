"""Access control: signed calls, their accounts' rights, and calls without a signature."""

import json

import pytest
import pytest_asyncio

from pocketmq.admin.api import users
from pocketmq.client.access import Access
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.remoting.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from pocketmq.remoting.signature import Credentials
from tests.broker.acl_files import acl_home
from tests.proxy.grpc_client import (
    consumer_settings,
    endpoints,
    message,
    producer_settings,
    queue_of,
    receive_request,
    resource,
    signed,
)
from tests.proxy.served import running_front, running_proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMIN, PAYER, READER = ("rootUser", "rootSecret1"), ("payerUser", "payerSecret"), ("readerUser", "readerSecret")
PLAIN_ACL = """\
accounts:
  - {accessKey: rootUser, secretKey: rootSecret1, admin: true}
  - accessKey: payerUser
    secretKey: payerSecret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [normal=PUB]
  - accessKey: readerUser
    secretKey: readerSecret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [normal=SUB]
    groupPerms: [g=SUB]
"""
WHITE = "globalWhiteRemoteAddresses: [127.0.0.*]\n"
USERS = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": ADMIN[0], "password": ADMIN[1]}),
}
AS_ADMIN = Access(Credentials(*ADMIN))


async def allow(served, name, *rights):
    """Give a user of 5.x rights, each a resource and an action."""
    entries = [PolicyEntryInfo(resource, [action], decision="Allow") for resource, action in rights]
    acl = AclInfo(f"User:{name}", [PolicyInfo(entries=entries)])
    await users.create_acl(served.admin, served.broker_address, acl)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=("plain_acl.yml", "users", "mqproxy"))
async def guarded(request, tmp_path_factory):
    """A front of a broker with either kind of access control, and `mqproxy` with plain_acl.yml of its own."""
    home = acl_home(tmp_path_factory.mktemp("home"), PLAIN_ACL)
    if request.param == "users":
        async with running_front(access=AS_ADMIN, **USERS) as served:
            for name, password in (PAYER, READER):
                await users.create_user(served.admin, served.broker_address, UserInfo(name, password))
            await allow(served, "payerUser", ("Topic:normal", "Pub"))
            await allow(served, "readerUser", ("Topic:normal", "Sub"), ("Group:g", "Sub"))
            yield served
        return
    async with running_front(access=AS_ADMIN, acl_enable=True, rocketmq_home=str(home)) as served:
        if request.param == "plain_acl.yml":
            yield served
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RMQ_PROXY_HOME", str(home))
            async with running_proxy(served, acl_enable=True) as proxied:
                yield proxied


SEND = pb.SendMessageRequest(messages=[message("normal")])
RECEIVE = receive_request("normal", "g", batch_size=1)
"""A call for which an account needs the right to consume."""


async def test_an_account_may_do_what_it_has_rights_for(guarded):
    async with guarded.client("payer", access=PAYER) as payer, payer.telemetry(producer_settings("normal")):
        await payer.done(pb.QueryRouteRequest(topic=resource("normal"), endpoints=endpoints()))
        await payer.done(SEND)
        await payer.done(pb.HeartbeatRequest(client_type=pb.PRODUCER))
    async with guarded.client("reader", access=READER) as reader, reader.telemetry(consumer_settings("g", "normal")):
        (found,) = (await reader.done(RECEIVE)).messages
        handle = found.system_properties.receipt_handle
        entry = pb.AckMessageEntry(message_id="m", receipt_handle=handle)
        await reader.done(pb.AckMessageRequest(group=resource("g"), topic=resource("normal"), entries=[entry]))


async def test_an_account_may_not_do_more(guarded):
    async with guarded.client("reader", access=READER) as reader:
        answer = await reader.ask(SEND)
        assert answer.status.code in (pb.UNAUTHORIZED, pb.FORBIDDEN)
        assert "readerUser" in answer.status.message or "topic" in answer.status.message
    async with guarded.client("payer", access=PAYER) as payer, payer.telemetry(producer_settings("normal")):
        assert await payer.code(RECEIVE) in ("UNAUTHORIZED", "FORBIDDEN")
        pull = pb.PullMessageRequest(group=resource("g"), message_queue=queue_of("normal"), batch_size=1)
        assert await payer.code(pull) in ("UNAUTHORIZED", "FORBIDDEN")


async def test_a_call_that_is_not_signed_is_refused(guarded):
    async with guarded.client("unsigned") as client:
        assert await client.code(SEND) == "UNAUTHORIZED"
        async with client.telemetry() as stream:
            answer = await stream.settle(consumer_settings("g", "normal"))
            assert answer.status.code in (pb.UNAUTHORIZED, pb.FORBIDDEN)


NO_DATE = {"x-mq-date-time": ""}
WRONG = {
    "wrong secret key": signed("payerUser", "wrongSecret"),
    "unknown account": signed("unknown", "payerSecret"),
    "another date": {**signed(*PAYER), "x-mq-date-time": "20260102T030406Z"},
    "no date": {**signed(*PAYER), **NO_DATE},
    "another form": {"authorization": "Basic cGF5ZXI6cGF5ZXJTZWNyZXQ="},
    "very long": {"authorization": "MQv2-HMAC-SHA1 Credential=" + "a" * 5000},
    "signs something else": {
        **signed(*PAYER),
        "authorization": signed(*PAYER)["authorization"].replace("SignedHeaders=x-mq-date-time", "SignedHeaders=x-mq-other"),
    },
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_wrong_signature_is_refused(guarded, case):
    async with guarded.client("payer", metadata=WRONG[case]) as client:
        assert await client.code(SEND) == "UNAUTHORIZED"
        async with client.telemetry() as stream:
            assert (await stream.read()).status.code == pb.UNAUTHORIZED


async def test_a_client_id_is_no_key_to_what_another_account_does(guarded):
    async with guarded.client("same", access=READER) as reader, reader.telemetry(consumer_settings("g", "normal")):
        async with guarded.client("same", access=PAYER) as payer:
            await payer.done(pb.NotifyClientTerminationRequest())
            assert await payer.code(pb.HeartbeatRequest()) == "UNRECOGNIZED_CLIENT_TYPE"
        await reader.done(pb.HeartbeatRequest(group=resource("g"), client_type=pb.SIMPLE_CONSUMER))


async def test_an_address_that_is_trusted_needs_no_signature(tmp_path):
    home = acl_home(tmp_path, WHITE + PLAIN_ACL)
    async with (
        running_front(access=AS_ADMIN, acl_enable=True, rocketmq_home=str(home)) as served,
        served.client("unsigned") as client,
    ):
        await client.done(SEND)


async def test_an_account_that_is_removed_from_the_file_is_refused(tmp_path, monkeypatch):
    home = acl_home(tmp_path, PLAIN_ACL)
    monkeypatch.setenv("RMQ_PROXY_HOME", str(home))
    async with (
        running_front() as served,
        running_proxy(served, acl_enable=True) as proxied,
        proxied.client("payer", access=PAYER) as payer,
    ):
        await payer.done(SEND)
        (home / "conf" / "plain_acl.yml").write_text(PLAIN_ACL.replace("payerUser", "formerPayer"))
        assert await payer.code(SEND) == "UNAUTHORIZED"
