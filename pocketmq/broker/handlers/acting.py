"""Requests between brokers of one name, and notifications of name servers about them (5.x's enableSlaveActingMaster)."""

import asyncio

from pocketmq.broker.registration.registration import Master, is_address
from pocketmq.broker.services import Services
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.headers.route import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
    NotifyMinBrokerIdChangeRequestHeader,
)


def notify_min_broker_id_change(services: Services, request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> Response:
    """Ask the name servers for the smallest id of this broker name now."""
    if services.acting_master is not None:
        services.acting_master.look()
    return Response()


def exchange_broker_ha_info(services: Services, request: Request[ExchangeHAInfoRequestHeader]) -> Response | Deferred:
    """Stop acting as master because a master announces its addresses, or return this master's addresses to a slave.

    A slave answers with the address of the port from which it copies.
    """
    ha_address, address = request.header.master_ha_address, request.header.master_address
    if ha_address is None:
        if services.ha is None:
            return Response(header=ExchangeHAInfoResponseHeader())
        registration, end_offset = services.registration, services.store.max_physical_offset
        header = ExchangeHAInfoResponseHeader(registration.ha_server_address, end_offset, registration.broker_address)
        return Response(header=header)
    if services.acting_master is None:
        return Response()
    if address is None or not is_address(ha_address) or not is_address(address):
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "the master's addresses are not host:port")
    answer = Deferred()

    def ended(ending: "asyncio.Task[Master | None]") -> None:
        followed = None if ending.cancelled() or ending.exception() else ending.result()
        answer.complete(Response(header=ExchangeHAInfoResponseHeader(followed.ha_address if followed else None)))

    asyncio.ensure_future(services.acting_master.master_announced(Master(ha_address, address))).add_done_callback(ended)
    return answer


ROUTES = routes(
    Route(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, NotifyMinBrokerIdChangeRequestHeader, notify_min_broker_id_change),
    Route(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequestHeader, exchange_broker_ha_info),
)
