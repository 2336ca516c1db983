"""Cases of the commands for consumer groups and their offsets."""

from tests.interop.mqadmin_matrix.case import Case

NO_ROUTE = r"CODE 17: No topic route info in name server for the topic: Missing"
NO_GROUP = r"CODE 17: No topic route info in name server for the topic: %RETRY%Missing"
RESET_BY_BROKER = "4.9.4 cannot reset a group that is not connected, and the tool commits the offsets"

CASES = [
    Case(
        "updateSubGroup -b {broker} -g Made",
        (r"create subscription group to BROKER success", r"groupName=Made, consumeEnable=true, consumeFromMinEnable=false"),
    ),
    Case(
        "updateSubGroup -c {cluster} -g Made -s false -m true -d true -q 2 -r 5 -i 1 -w 2 -a false",
        (r"create subscription group to BROKER success", r"consumeBroadcastEnable=true, retryQueueNums=2, retryMaxTimes=5"),
    ),
    Case("updateSubGroup -c NoSuchCluster -g Made", (r"unknown cluster",)),
    Case("updateSubGroup -b 127.0.0.1:1 -g Made", (r"connect failed",)),
    Case("updateSubGroup -g Made", (r"usage",)),
    Case("updateSubGroup -b {broker}", (r"usage",), exit_code=1),
    Case("updateSubGroup -b {broker} -g Guarded", (r"CODE 1: .*AclException",), whole=False, signed=False),
    Case("getConsumerConfig -g Made", (r"^=+CLUSTER:NAME=+$", r"^retryMaxTimes = 5$", r"^consumeEnable = false$")),
    Case("getConsumerConfig", (r"usage",), exit_code=1),
    Case("deleteSubGroup -b {broker} -g Made", (r"delete subscription group \[Made\] from broker \[BROKER\] success",)),
    Case(
        "deleteSubGroup -c {cluster} -g Made -r true",
        (
            r"delete subscription group \[Made\] from broker \[BROKER\] in cluster \[CLUSTER\] success",
            r"delete topic \[%RETRY%Made\] from cluster \[CLUSTER\] success",
            r"delete topic \[%DLQ%Made\] from NameServer success",
        ),
    ),
    Case("deleteSubGroup -c NoSuchCluster -g Made", (r"unknown cluster",)),
    Case("deleteSubGroup -g Made", (r"usage",)),
    Case(
        "resetOffsetByTime -g Billing -t Orders -s 2026-01-01#00:00:00:000",
        (r"force\[true\], timestamp\(string\)\[2026-01-01#00:00:00:000\]", r"^NAME 0 0$", r"^NAME 1 0$"),
    ),
    Case(
        "resetOffsetByTime -g Billing -t Orders -s now",
        (r"rollback consumer offset by specified group\[Billing\], topic\[Orders\]", r"^NAME 0 3$"),
    ),
    Case("resetOffsetByTime -g Billing -t Orders -s 0 -f false -c", (r"force\[false\]", r"^NAME 1 0$")),
    Case(
        "resetOffsetByTime -g Missing -t Orders -s now",
        (r"CODE 26: subscription group\[Missing\] does not exist",),
        at_apache=(r"CODE 1: THe consumer group <Missing> not exist",),
        why="PocketMQ answers as 5.x",
    ),
    Case("resetOffsetByTime -g Billing -t Missing -s now", (NO_ROUTE,)),
    Case("resetOffsetByTime -g Billing -t Orders", (r"usage",), exit_code=1),
    Case("skipAccumulatedMessage -g Billing -t Orders", (r"^NAME 0 3$", r"^NAME 1 3$", r"#offset")),
    Case("skipAccumulatedMessage -g Billing -t Missing", (NO_ROUTE,)),
    Case("skipAccumulatedMessage -g Billing", (r"usage",), exit_code=1),
    Case(
        "cloneGroupOffset -s Billing -d Copy -t Orders",
        (r"clone group offset success. srcGroup\[Billing\], destGroup=\[Copy\], topic\[Orders\]",),
    ),
    Case("cloneGroupOffset -s Missing -d Copy -t Orders", (NO_GROUP,)),
    Case("cloneGroupOffset -s Billing -t Orders", (r"usage",), exit_code=1),
    Case("updateSubGroup -b {broker} -g Copy", (r"groupName=Copy",)),
    Case(
        "resetOffsetByTime -g Copy -t Orders -s 0",
        (r"timestamp\(long\)\[0\]", r"^NAME 0 0$"),
        at_apache=(r"specified consumerGroup\[Copy\]", r"^NAME 0 3 \d 0 0$"),
        why=RESET_BY_BROKER,
    ),
    Case(
        "skipAccumulatedMessage -g Copy -t Orders",
        (r"^NAME 0 3$",),
        at_apache=(r"^NAME 0 3 \d 3 3$", r"#rollbackOffset"),
        why=RESET_BY_BROKER,
    ),
]
