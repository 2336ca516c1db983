"""Cases of the commands for brokers and clusters, and of the exports."""

from tests.interop.mqadmin_matrix.case import Case

RATES = (r"\d+\.\d\d\(\d*,\d*(ms)?\)",)
APACHE_TAKES_ALL = "4.9.4 answers success to any key"

CASES = [
    Case(
        "clusterList",
        (r"^#Cluster Name #Broker Name #BID #Addr #Version", r"^CLUSTER NAME 0 BROKER V4_9_4 \.\. \.\. "),
        whole=False,
        hides=RATES,
    ),
    Case("clusterList -m", (r"^CLUSTER NAME 0 0 9 0$", r"#InTotalYest #OutTotalYest #InTotalToday")),
    Case("brokerStatus -b {broker}", (r"^brokerVersionDesc : V4_9_4$", r"^putTps *:", r"^runtime : \[ 0 days"), whole=False),
    Case(
        "brokerStatus -c {cluster}",
        (r"^BROKER brokerVersionDesc : V4_9_4$", r"^BROKER putMessageTimesTotal : \d$"),
        whole=False,
    ),
    Case("brokerStatus -c NoSuchCluster", (r"unknown cluster",)),
    Case("brokerStatus -b 127.0.0.1:1", (r"connect failed",)),
    Case(
        "getBrokerConfig -b {broker}", (r"^=+BROKER=+$", r"^brokerName = NAME$", r"^maxMessageSize = 4194304$"), whole=False
    ),
    Case("getBrokerConfig -c {cluster}", (r"^=+Master: BROKER=+$", r"^brokerClusterName = CLUSTER$"), whole=False),
    Case("getBrokerConfig -c NoSuchCluster", (r"unknown cluster",)),
    Case("updateBrokerConfig -b {broker} -k fileReservedTime -v 96", (r"update broker config success, BROKER",)),
    Case("getBrokerConfig -b {broker}", (r"^fileReservedTime = 96$",), whole=False),
    Case("updateBrokerConfig -c {cluster} -k longPollingEnable -v true", (r"update broker config success, BROKER",)),
    Case(
        "updateBrokerConfig -b {broker} -k noSuchKey -v 1",
        (r"CODE 1: unknown key noSuchKey",),
        at_apache=(r"update broker config success, BROKER",),
        why=APACHE_TAKES_ALL,
    ),
    Case(
        "updateBrokerConfig -b {broker} -k fileReservedTime -v many",
        (r"CODE 1: .*fileReservedTime.*",),
        at_apache=(r"update broker config success, BROKER",),
        why=APACHE_TAKES_ALL,
    ),
    Case("updateBrokerConfig -c NoSuchCluster -k fileReservedTime -v 96", (r"unknown cluster",)),
    Case("updateBrokerConfig -k fileReservedTime -v 96", (r"usage",)),
    Case("updateBrokerConfig -b {broker} -k fileReservedTime", (r"usage",), exit_code=1),
    Case("cleanExpiredCQ -b {broker}", (r"success",)),
    Case("cleanExpiredCQ", (r"success",)),
    Case("deleteExpiredCommitLog -c {cluster}", (r"success",)),
    Case("deleteExpiredCommitLog -b {broker}", (r"success",)),
    Case("cleanUnusedTopic -b {broker}", (r"success",)),
    Case("cleanUnusedTopic -c {cluster}", (r"success",)),
    Case("cleanUnusedTopic -b 127.0.0.1:1", (r"connect failed",)),
    Case("exportConfigs -c {cluster} -f {folder}", (r"export FOLDER/configs.json success",)),
    Case("exportMetadata -c {cluster} -f {folder}", (r"export FOLDER/metadata.json success",)),
    Case("exportMetadata -b {broker} -t -f {folder}", (r"export FOLDER/topic.json success",)),
    Case("exportMetadata -b {broker} -g -f {folder}", (r"export FOLDER/subscriptionGroup.json success",)),
    Case("exportMetadata -c {cluster} -t -f {folder}", (r"export FOLDER/topic.json success",)),
    Case("exportMetrics -c {cluster} -f {folder}", (r"export FOLDER/metrics.json success",)),
    Case("exportMetadata -f {folder}", (r"usage",)),
    Case("exportConfigs -f {folder}", (r"usage",), exit_code=1),
]
