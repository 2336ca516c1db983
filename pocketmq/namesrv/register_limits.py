"""Limits of registrations. All data that a broker sends is kept, so each part has a limit with a config key."""

from collections.abc import Container, Iterable

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.bodies import TopicConfig, TopicConfigSerializeWrapper
from pocketmq.remoting.codes import ResponseCode

SHOWN_SIZE_MAX = 60
"""Maximum number of characters of a name shown in an error."""
PERM_MAX = 15
SYS_FLAG_MAX = 2**31 - 1


class RegistrationRefused(ValueError):
    """The whole registration is refused. `key` is the kind of the refusal, `code` the response code."""

    def __init__(self, key: str, why: str, code: int = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(why)
        self.key = key
        self.code = code


def check_names(config: NamesrvConfig, names: Iterable[tuple[str, str]], filter_servers: list[str]) -> None:
    """Check (what, name) pairs and filter servers. Raises RegistrationRefused for one too long or too many."""
    for what, name in names:
        _check_size(config, what, name)
    if len(filter_servers) > config.register_filter_servers_max:
        raise _beyond("registerFilterServersMax", config.register_filter_servers_max, len(filter_servers), "filter servers")
    for name in filter_servers:
        _check_size(config, "filter server", name)


def check_topics(config: NamesrvConfig, topics: TopicConfigSerializeWrapper, known: Container[str]) -> int:
    """Return the number of topics not in `known`. Raises RegistrationRefused for too many or an invalid one."""
    table = topics.topic_config_table
    if len(table) > config.register_topics_max:
        raise _beyond("registerTopicsMax", config.register_topics_max, len(table), "topics")
    size_max, queues_max = config.register_name_size_max, config.register_queues_max
    fresh = 0
    for topic in table.values():
        name = topic.topic_name
        if (
            len(name) > size_max
            or not 0 <= topic.read_queue_nums <= queues_max
            or not 0 <= topic.write_queue_nums <= queues_max
            or not 0 <= topic.perm <= PERM_MAX
            or not 0 <= topic.topic_sys_flag <= SYS_FLAG_MAX
        ):
            raise _bad_topic(config, topic)
        if name not in known:
            fresh += 1
    return fresh


def _bad_topic(config: NamesrvConfig, topic: TopicConfig) -> RegistrationRefused:
    _check_size(config, "topic", topic.topic_name)
    shown = topic.topic_name[:SHOWN_SIZE_MAX]
    most, queues = config.register_queues_max, (topic.read_queue_nums, topic.write_queue_nums)
    for name, value in zip(("readQueueNums", "writeQueueNums"), queues, strict=True):
        if not 0 <= value <= most:
            return RegistrationRefused("queues", f"topic {shown!r}: {name}={value}: registerQueuesMax={most} is the limit")
    if not 0 <= topic.perm <= PERM_MAX:
        return RegistrationRefused("perm", f"topic {shown!r}: perm={topic.perm} is not within 0 to {PERM_MAX}")
    return RegistrationRefused(
        "flag", f"topic {shown!r}: topicSysFlag={topic.topic_sys_flag} is not within 0 to {SYS_FLAG_MAX}"
    )


def check_room(config: NamesrvConfig, brokers: int, clusters: int, rows: int) -> None:
    """Raise RegistrationRefused if a table would exceed its limit."""
    if brokers > config.register_brokers_max:
        raise _beyond("registerBrokersMax", config.register_brokers_max, brokers, "brokers")
    if clusters > config.register_clusters_max:
        raise _beyond("registerClustersMax", config.register_clusters_max, clusters, "clusters")
    if rows > config.route_rows_max:
        raise _beyond("routeRowsMax", config.route_rows_max, rows, "rows of the route table")


def _check_size(config: NamesrvConfig, what: str, name: str) -> None:
    size_max = config.register_name_size_max
    if len(name) > size_max:
        shown = name[:SHOWN_SIZE_MAX]
        why = f"{what} {shown!r}... has {len(name)} characters: registerNameSizeMax={size_max} is the limit"
        raise RegistrationRefused("registerNameSizeMax", why)


def _beyond(key: str, limit: int, value: int, what: str) -> RegistrationRefused:
    return RegistrationRefused(key, f"{value} {what}: {key}={limit} is the limit")
