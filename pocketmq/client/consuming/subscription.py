"""Subscriptions of a group to topics: by tags, or by SQL92 expressions."""

from typing import Final

from pocketmq.client.message import MessageExt, now_ms
from pocketmq.client.message_check import check_tags, check_topic
from pocketmq.remoting.bodies import SubscriptionData
from pocketmq.store.format.java_hash import java_hash

SQL92: Final = "SQL92"


def subscription(topic: str, tags: str, sql: str | None = None) -> SubscriptionData:
    """Return a group's subscription to a topic: `*`, tags separated by `||`, or an SQL92 expression.

    Raises TypeError or ValueError.
    """
    check_topic(topic)
    if sql is not None:
        return _by_sql(topic, tags, sql)
    if not isinstance(tags, str):
        raise TypeError(f"tags must be str, 'a || b' or '*', not {type(tags).__name__}")
    wanted = [] if tags.strip() in ("", "*") else sorted({tag.strip() for tag in tags.split("||")} - {""})
    if not wanted and tags.strip() not in ("", "*"):
        raise ValueError(f"tags {tags!r} contain no tag: write 'a || b', or '*' for all")
    for tag in wanted:
        check_tags(tag)
    return SubscriptionData(
        topic=topic,
        sub_string=tags if wanted else "*",
        sub_version=now_ms(),
        tags_set=wanted,
        code_set=[java_hash(tag) for tag in wanted],
    )


def _by_sql(topic: str, tags: str, sql: str) -> SubscriptionData:
    if not isinstance(sql, str):
        raise TypeError(f"sql must be str, such as 'price > 100', not {type(sql).__name__}")
    if not sql.strip():
        raise ValueError("sql is empty: write an expression, such as 'price > 100'")
    if tags != "*":
        raise ValueError(f"tags {tags!r} and sql are given: write the tags into the expression, as in TAGS IN ('a', 'b')")
    return SubscriptionData(topic=topic, sub_string=sql, expression_type=SQL92, sub_version=now_ms())


def is_wanted(own: SubscriptionData, message: MessageExt) -> bool:
    """Return whether a message has one of the subscribed tags; brokers compare only their hashes."""
    return not own.tags_set or message.tags in own.tags_set
