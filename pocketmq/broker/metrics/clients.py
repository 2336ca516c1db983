"""Connected producers and consumers, counted by the labels of RocketMQ 5."""

from collections import Counter
from typing import Final

from pocketmq.broker.clients.client_registry import CONSUME_TYPES, ClientChannelInfo
from pocketmq.broker.metrics.limited import Limited
from pocketmq.broker.services import Services
from pocketmq.metrics.family import OTHER
from pocketmq.remoting.codes import LanguageCode

_LANGUAGES: Final = {str(key): one.name.lower() for one in LanguageCode for key in (one.name, one.value)}
_MODES: Final = dict(zip(CONSUME_TYPES, ("pull", "push", "pop"), strict=True))
_FIRST_4_0: Final = 212
"""MQVersion's ordinal of V4_0_0_SNAPSHOT. From there on each patch has two: snapshot and release."""
_PER_MAJOR, _PER_MINOR = 200, 20


def version_label(ordinal: int) -> str:
    """Return `v4_9_4` for 401. Ordinals of no version are `unknown`: peers must not be able to create labels at will."""
    major, rest = divmod(ordinal - _FIRST_4_0, _PER_MAJOR)
    if not 0 <= major <= 1:
        return "v3" if 0 <= ordinal < _FIRST_4_0 else "unknown"
    minor, rest = divmod(rest, _PER_MINOR)
    patch, is_release = divmod(rest, 2)
    return f"v{major + 4}_{minor}_{patch}" + ("" if is_release else "_snapshot")


def _labels(client: ClientChannelInfo) -> tuple[str, str]:
    return _LANGUAGES.get(str(client.language), "other"), version_label(client.version)


def producer_counts(services: Services) -> Counter[tuple[str, ...]]:
    """Return (language, version) -> number of connections; one with several groups counts once."""
    by_channel = {channel: client for table in services.clients.producers.values() for channel, client in table.items()}
    return Counter(_labels(client) for client in by_channel.values())


def consumer_counts(services: Services, limited: Limited[str]) -> Counter[tuple[str, ...]]:
    """Return (group, language, version, mode) -> number of connections."""
    counts: Counter[tuple[str, ...]] = Counter()
    for name, group in services.clients.consumers.items():
        own, mode = name if limited.is_own(name) else OTHER, _MODES.get(group.consume_type, "push")
        for client in group.clients.values():
            counts[own, *_labels(client), mode] += 1
    return counts
