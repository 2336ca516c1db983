"""All cases by family, in the order in which they run."""

from tests.interop.mqadmin_matrix import acl_cases, broker_cases, nameserver_cases, topic_cases
from tests.interop.mqadmin_matrix.case import Case

FAMILIES: dict[str, list[Case]] = {
    "topics": topic_cases.CASES,
    "brokers and clusters": broker_cases.CASES,
    "name servers": nameserver_cases.CASES,
    "access rules": acl_cases.CASES,
}
