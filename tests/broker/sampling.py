"""Samples of a broker's statistics, taken at once."""

from pocketmq.broker.stats.stats import BrokerStats


def sample(stats: BrokerStats) -> None:
    """Take all samples."""
    for _ in stats.sampling():
        pass
