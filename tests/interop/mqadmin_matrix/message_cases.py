"""Cases of the commands for messages."""

from tests.interop.mqadmin_matrix.case import Case

STORED = (
    *(r"[bB]orn ?[hH]ost[:=] *[^\s,]+", r"CommitLog Offset: +\d+", r"commitLogOffset=\d+", r"storeSize=\d+"),
    *(r"Properties: +\{.*\}", r"properties=\{[^}]*\}", r"(born|store)Timestamp=\d+", r"msgId=[0-9A-F]+"),
    *(r"OffsetID: +\S+", r"^MSGID: \S+", r"msgbodys/\S+", r"^[0-9A-F]{32}"),
)
UNITS = (r"physicOffset=\d+", r"physicSize=\d+", r'"subVersion":\d+', r"idx: \d+")
PAID = r"MessageExt \[brokerName=NAME, queueId=0, \.\., queueOffset=2, "
NOT_FOUND = r"CODE 208: query message by key finished, but no message."

CASES = [
    Case(
        "queryMsgByOffset -t Orders -b {name} -i 0 -o 1",
        (r"^Queue Offset: 1$", r"^Keys: \[order-0-1\]$", r"consumerGroup=Billing, trackType=PULL, exceptionDesc=null"),
        hides=STORED,
    ),
    Case("queryMsgByOffset -t Orders -b NoBroker -i 0 -o 1", (r"The broker\[NoBroker\] not exist",)),
    Case("queryMsgByOffset -t Orders -b {name} -i 0", (r"usage",), exit_code=1),
    Case(
        "queryMsgById -i {offset_id}",
        (r"^Topic: Payments$", r"^Tags: \[card\]$", r"consumerGroup=Shipping, trackType=CONSUMED, exceptionDesc=null"),
        hides=STORED,
    ),
    Case("queryMsgById -i {bad_id}", (r"CODE 1: can not find message by the offset, 16777215",)),
    Case("queryMsgById -i nonsense", (r"CODE 208: query message by id finished, but no message",), whole=False),
    Case(
        "queryMsgById -i {offset_id} -g Shipping -d {client}",
        (r"ConsumeMessageDirectlyResult \[order=false, autoCommit=true, consumeResult=CR_SUCCESS, remark=null",),
    ),
    Case("queryMsgById -i {offset_id} -g Shipping -d nobody", (r"CODE 1: The Consumer <Shipping> <nobody> not online",)),
    Case("queryMsgById", (r"usage",), exit_code=1),
    Case(
        "queryMsgByUniqueKey -t Payments -i {unique_key}",
        (r"^Keys: \[payment-0\]$", r"consumerGroup=Shipping, trackType=CONSUMED, exceptionDesc=null"),
        hides=STORED,
        settles=True,
    ),
    Case("queryMsgByUniqueKey -t Payments -i {unique_key} -a", (r"^Queue Offset: 0$",), hides=STORED),
    Case(
        "queryMsgByUniqueKey -t Payments -i {unique_key} -g Shipping -d {client}",
        (r"ConsumeMessageDirectlyResult \[order=false, autoCommit=true, consumeResult=CR_SUCCESS",),
    ),
    Case("queryMsgByUniqueKey -t Payments -i Missing", (NOT_FOUND,)),
    Case("queryMsgByUniqueKey -t Missing -i Missing", (r"CODE 17: The topic\[Missing\] not matched route info",)),
    Case("queryMsgByKey -t Orders -k order-1-2", (r"^\.\. 1 2$", r"#Message ID #QID #Offset"), hides=STORED, settles=True),
    Case("queryMsgByKey -t Orders -k Missing", (NOT_FOUND,)),
    Case("queryMsgByKey -t Missing -k order-1-2", (r"CODE 17: The topic\[Missing\] not matched route info",)),
    Case("queryMsgByKey -t Orders", (r"usage",), exit_code=1),
    Case(
        "queryMsgTraceById -t Traces -i {unique_key}",
        (r"^Pub Refunds 127.0.0.1 TIME 5ms success$", r"^Sub Shipping 127.0.0.1 TIME 7ms success$", r"#ConsumerGroup"),
        settles=True,
    ),
    Case("queryMsgTraceById -t Traces -i Missing", (NOT_FOUND,)),
    Case("queryMsgTraceById -t Missing -i {unique_key}", (r"CODE 17: The topic\[Missing\] not matched route info",)),
    Case(
        "queryCq -t Orders -q 0 -i 1 -c 2 -g Billing",
        (r'^"subString":"\*",$', r"^max: 3, min: 0$", r"ConsumeQueueData\{\.\., \.\., tagsCode=3433164, "),
        hides=UNITS,
        settles=True,
    ),
    Case("queryCq -t Orders -q 0 -i 0 -b {broker}", (r"^max: 3, min: 0$",), hides=UNITS),
    Case("queryCq -t Orders -q 9 -i 0", (r"CODE 1: 9@Orders is not exist!",)),
    Case("queryCq -t Missing -q 0 -i 0", (r"CODE 17: No topic route info",), whole=False),
    Case("printMsg -t Orders", (r"^minOffset=0, maxOffset=3, MessageQueue", PAID, r"BODY: order 2$"), hides=STORED),
    Case("printMsg -t Orders -s refunded -d false", (r"queueId=1\] no matched msg. status=NO_MATCHED_MSG, offset=3",)),
    Case("printMsg -t Orders -b 2026-01-01#00:00:00:000 -d false", (r"BODY: NOT PRINT BODY$",), hides=STORED),
    Case("printMsg", (r"usage",), exit_code=1),
    Case(
        "printMsgByQueue -t Orders -a {name} -i 0 -p true -d true -f true",
        (PAID, r"^Tag: paid Count: 3$", r"BODY: order 0$"),
        hides=STORED,
    ),
    Case("printMsgByQueue -t Orders -a NoBroker -i 0 -p true", (r"The broker\[NoBroker\] not exist",)),
    Case("printMsgByQueue -t Orders -a {name}", (r"usage",), exit_code=1),
    Case(
        "consumeMessage -t Orders",
        (r"^Consume ok$", r"BODY: order 2$", r"print msg finished. status=NO_NEW_MSG, offset=3"),
        hides=STORED,
    ),
    Case(
        "consumeMessage -t Orders -b {name} -i 1 -o 1 -c 1",
        (r"^The oldler 1 message will be provided$", r"BODY: order 1$"),
        hides=STORED,
    ),
    Case("consumeMessage -t Orders -b {name} -i 1 -o 9", (r"queueId=1\] no matched msg, offset=9",)),
    Case("consumeMessage -t Orders -i 1", (r"Please set the brokerName before queueId!",)),
    Case("consumeMessage -t Orders -b {name} -o 1", (r"Please set queueId before offset!",)),
    Case("consumeMessage -t Orders -c 0", (r"Please input a positive messageNumber!",)),
]
