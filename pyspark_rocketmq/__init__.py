"""The hook by which Spark finds the format `rocketmq`: it looks for `DefaultSource` in packages named pyspark_*."""

from pocketmq.spark_analytics.source.data_source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
