"""Texts of the pages about brokers."""

from typing import Final

TEXTS: Final = {
    "cluster.title": ("Cluster", "集群"),
    "cluster.brokers": ("Brokers", "Broker 列表"),
    "cluster.of": ("Clusters: {names}", "集群：{names}"),
    "cluster.role": ("Role", "角色"),
    "cluster.master": ("master", "主"),
    "cluster.slave": ("slave {id}", "从 {id}"),
    "cluster.in_rate": ("In, messages/s", "写入（条/秒）"),
    "cluster.out_rate": ("Out, messages/s", "读出（条/秒）"),
    "cluster.in_today": ("In today", "今日写入"),
    "cluster.lag": ("Replication lag", "复制延迟"),
    "cluster.log_size": ("Log", "日志大小"),
    "cluster.disk": ("Disk used", "磁盘使用率"),
    "cluster.started": ("Started {time}", "启动时间 {time}"),
    "cluster.info": ("Runtime info", "运行信息"),
    "cluster.key": ("Key", "键"),
    "cluster.unknown_broker": (
        "No broker with the address {address} is registered.",
        "没有注册地址为 {address} 的 Broker。",
    ),
}
