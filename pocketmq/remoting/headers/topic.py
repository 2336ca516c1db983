"""Topics on brokers and name servers."""

from pocketmq.remoting.header import I32, CommandHeader


class CreateTopicRequestHeader(CommandHeader):
    """UPDATE_AND_CREATE_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: I32
    write_queue_nums: I32
    perm: I32
    topic_filter_type: str
    topic_sys_flag: I32 | None = None
    order: bool = False
    attributes: str | None = None


class TopicRequestHeader(CommandHeader):
    """DELETE_TOPIC_IN_BROKER, GET_TOPIC_STATS_INFO, GET_TOPIC_CONFIG, QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


class DeleteTopicInNamesrvRequestHeader(CommandHeader):
    """DELETE_TOPIC_IN_NAMESRV. cluster_name absent: the whole topic."""

    topic: str
    cluster_name: str | None = None


class GetRouteInfoRequestHeader(CommandHeader):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool = False


class GetTopicsByClusterRequestHeader(CommandHeader):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str
