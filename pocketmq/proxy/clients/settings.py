"""Settings of a client, completed by the front: what the client has to observe, from the front's and its group's."""

from collections.abc import Mapping
from typing import Any, Final

from pocketmq.proxy.config import GrpcConfig
from pocketmq.proxy.messages.outgoing import duration
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.remoting.bodies import SubscriptionGroupConfig
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels

_CUSTOMIZED_MS: Final = DelayLevels(DEFAULT_MESSAGE_DELAY_LEVEL).delays_ms
"""Apache's retry intervals of a group that has no policy of its own."""
RETRY_TIMES: Final = 16


def completed(given: pb.Settings, config: GrpcConfig, group: SubscriptionGroupConfig | None) -> pb.Settings:
    """Return the settings that are sent back to a client."""
    settings = pb.Settings()
    settings.CopyFrom(given)
    settings.metric.CopyFrom(pb.Metric(on=False))
    if settings.WhichOneof("pub_sub") == "publishing":
        settings.backoff_policy.CopyFrom(_producer_policy(config))
        settings.publishing.validate_message_type = config.enable_topic_message_type_check
        settings.publishing.max_body_size = config.max_message_size
        return settings
    subscription = settings.subscription
    subscription.fifo = bool(group and group.consume_message_orderly)
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    subscription.long_polling_timeout.CopyFrom(duration(config.grpc_client_consumer_max_long_polling_timeout_millis))
    settings.backoff_policy.CopyFrom(consumer_policy(group))
    return settings


def _producer_policy(config: GrpcConfig) -> pb.RetryPolicy:
    return pb.RetryPolicy(
        max_attempts=config.grpc_client_producer_max_attempts,
        exponential_backoff=pb.ExponentialBackoff(
            initial=duration(config.grpc_client_producer_backoff_initial_millis),
            max=duration(config.grpc_client_producer_backoff_max_millis),
            multiplier=config.grpc_client_producer_backoff_multiplier,
        ),
    )


def max_attempts(group: SubscriptionGroupConfig | None) -> int:
    """Return how often a message is delivered to a group before it goes to the dead-letter topic."""
    return (RETRY_TIMES if group is None else max(group.retry_max_times, 0)) + 1


def consumer_policy(group: SubscriptionGroupConfig | None) -> pb.RetryPolicy:
    """Return the retry policy of a group: its own, or Apache's default intervals."""
    policy = pb.RetryPolicy(max_attempts=max_attempts(group))
    own: Mapping[str, Any] = (group.group_retry_policy if group else None) or {}
    exponential, customized = own.get("exponentialRetryPolicy"), own.get("customizedRetryPolicy")
    if own.get("type") == "EXPONENTIAL":
        given: Mapping[str, Any] = exponential or {}
        policy.exponential_backoff.CopyFrom(
            pb.ExponentialBackoff(
                initial=duration(_number(given, "initial", 5000)),
                max=duration(_number(given, "max", 7_200_000)),
                multiplier=float(_number(given, "multiplier", 2)),
            )
        )
        return policy
    intervals = (customized or {}).get("next") or _CUSTOMIZED_MS
    policy.customized_backoff.next.extend(duration(int(one)) for one in intervals)
    return policy


def _number(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    return int(value) if isinstance(value, (int, float)) else default
