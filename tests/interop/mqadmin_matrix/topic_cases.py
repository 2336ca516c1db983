"""Cases of the commands for topics."""

from tests.interop.mqadmin_matrix.case import Case

NO_ROUTE = r"CODE 17: No topic route info in name server for the topic: Missing"
LATER = r"\d\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d,\d\d\d"

CASES = [
    Case(
        "updateTopic -c {cluster} -t New -r 4 -w 4", (r"create topic to BROKER success", r"topicName=New, readQueueNums=4")
    ),
    Case(
        "updateTopic -b {broker} -t Second -r 2 -w 3 -p 4",
        (r"create topic to BROKER success", r"writeQueueNums=3, perm=R--"),
    ),
    Case("updateTopic -b {broker} -t Unit -u true -s true", (r"topicSysFlag=3",)),
    Case("updateTopic -c {cluster} -t Ordered -r 3 -w 3 -o true", (r"isOrder=true, orderConf=\[NAME:3\]", r"order=true")),
    Case(
        "updateTopic -b {broker} -t Ordered -r 3 -w 5 -o true",
        (r"set broker orderConf. isOrder=true, orderConf=\[NAME:5\]",),
    ),
    Case("updateOrderConf -t Ordered -m get", (r"orderConf=\[NAME:5\]",)),
    Case(
        "updateOrderConf -t Ordered -m put -v a:4;b:4",
        (r"update orderConf success. topic=\[Ordered\], orderConf=\[a:4;b:4\]",),
    ),
    Case("updateOrderConf -t Ordered -m put", (r"please set orderConf with option -v.",)),
    Case("updateOrderConf -t Ordered -m delete", (r"delete orderConf success. topic=\[Ordered\]",)),
    Case("updateOrderConf -t Ordered -m get", (r"CODE 22: No config item, Namespace: ORDER_TOPIC_CONFIG Key: Ordered",)),
    Case("updateTopic -c NoSuchCluster -t New", (r"unknown cluster",)),
    Case("updateTopic -c {cluster} -t TBW102", (r"CODE 1: The topic\[TBW102\] is conflict with system topic.",)),
    Case("updateTopic -c {cluster} -t bad!name", (r"CODE 1: The specified topic contains illegal characters",), whole=False),
    Case("updateTopic -t New", (r"usage",), exit_code=1),
    Case("updateTopic -b {broker} -c {cluster} -t New", (r"usage",), exit_code=1),
    Case("updateTopic -b {broker}", (r"usage",), exit_code=1),
    Case("updateTopic -b 127.0.0.1:1 -t New", (r"connect failed",)),
    Case("topicRoute -t New", (r'"brokerAddrs": {"0": "BROKER"}', r'"writeQueueNums": 4'), settles=True),
    Case("topicRoute -t New -l", (r"CLUSTER NAME {0=BROKER} 4 4 6", r"Total: 1 4 4"), settles=True),
    Case("topicRoute -t Second", (r'"perm": 4, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 3',), settles=True),
    Case("topicRoute -t Missing", (NO_ROUTE,)),
    Case("topicRoute", (r"usage",), exit_code=1),
    Case("topicRoute -t New --no-such-option", (r"usage",), exit_code=1),
    Case("topicStatus -t Orders", (r"^NAME 0 0 3 TIME$", r"^NAME 1 0 3 TIME$")),
    Case("topicStatus -t New", (r"^NAME 3 0 0$",)),
    Case("topicStatus -t Missing", (NO_ROUTE,)),
    Case("topicList", (r"^Orders$", r"^New$", r"^TBW102$", r"^SCHEDULE_TOPIC_XXXX$", r"^%RETRY%Billing$"), whole=False),
    Case("topicList -c", (r"^CLUSTER Orders Billing$", r"^CLUSTER New$", r"#Consumer Group"), whole=False),
    Case("topicClusterList -t Orders", (r"^CLUSTER$",)),
    Case("topicClusterList -t Missing", (NO_ROUTE,)),
    Case("updateTopicPerm -b {broker} -t New -p 4", (r"update topic perm from 6 to 4 in BROKER success", r"perm=R--")),
    Case("updateTopicPerm -b {broker} -t New -p 4", (r"new perm equals to the old one!",), settles=True),
    Case("updateTopicPerm -c {cluster} -t New -p 6", (r"update topic perm from 4 to 6 in BROKER success",)),
    Case("updateTopicPerm -b 127.0.0.1:1 -t New -p 6", (r"updateTopicPerm error broker not exit or broker is not master!",)),
    Case("updateTopicPerm -b {broker} -t Missing -p 6", (NO_ROUTE,)),
    Case("updateTopicPerm -t New -p 6", (r"usage",)),
    Case("updateTopicPerm -b {broker} -t New", (r"usage",), exit_code=1),
    Case("allocateMQ -t Orders -i 10.0.0.1,10.0.0.2", (r'"10.0.0.1": \[{"brokerName": "NAME"',), whole=False),
    Case("allocateMQ -t Missing -i 10.0.0.1", (NO_ROUTE,)),
    Case("deleteTopic -c {cluster} -t New", (r"delete topic \[New\] from cluster \[CLUSTER\] success",)),
    Case("topicRoute -t New", (r"CODE 17: No topic route info in name server for the topic: New",), settles=True),
    Case("deleteTopic -c {cluster} -t Missing", (r"delete topic \[Missing\] from NameServer success",)),
    Case("deleteTopic -c NoSuchCluster -t Orders", (r"unknown cluster",)),
    Case("deleteTopic -t Orders", (r"usage",), exit_code=1),
    Case("updateTopic -c {cluster} -t Guarded", (r"CODE 1: .*AclException",), whole=False, signed=False),
    Case("noSuchCommand -t Orders", (r"unknown command",)),
    Case("TOPICROUTE -t Missing", (NO_ROUTE,)),
]
