"""All cases by family, in the order in which they run."""

from tests.interop.mqadmin_matrix import (
    acl_cases,
    auth_cases,
    broker_cases,
    consumer_cases,
    group_cases,
    message_cases,
    nameserver_cases,
    send_cases,
    topic_cases,
)
from tests.interop.mqadmin_matrix.case import Case

FAMILIES: dict[str, list[Case]] = {
    "topics": topic_cases.CASES,
    "brokers and clusters": broker_cases.CASES,
    "name servers": nameserver_cases.CASES,
    "consumers and producers": consumer_cases.CASES,
    "messages": message_cases.CASES,
    "sends and statistics": send_cases.CASES,
    "consumer groups and offsets": group_cases.CASES,
    "access rules": acl_cases.CASES,
}

AUTH_FAMILIES: dict[str, list[Case]] = {
    "users and ACLs of 5.x": auth_cases.CASES,
}
"""Cases that are compared with Apache 5.5.0, at brokers with authenticationEnabled and authorizationEnabled."""
