"""Request handlers: one module per family of request codes; this module merges their route tables."""

from pocketmq.broker.handlers import (
    acl,
    acting,
    admin,
    assignment,
    auth,
    client,
    clock,
    delay,
    group,
    offset,
    pop,
    pull,
    query,
    relay,
    reply,
    send,
    send_back,
    topic,
    transaction,
)
from pocketmq.remoting.dispatch import routes

_FAMILIES = (
    send, reply, pull, pop, assignment, offset, query, client, send_back, transaction, delay,
    topic, group, admin, acl, auth, relay, clock, acting,
)  # fmt: skip
ROUTES = routes(*(family.ROUTES.values() for family in _FAMILIES))
"""Request code -> route. A code in two modules raises at import."""
