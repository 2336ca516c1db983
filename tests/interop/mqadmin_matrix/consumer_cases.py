"""Cases of the commands for consumers and producers."""

from tests.interop.mqadmin_matrix.case import Case

NO_GROUP = r"CODE 17: No topic route info in name server for the topic: %RETRY%Missing"
PORTS = (r"127\.0\.0\.1:\d+", r"lastUpdateTimestamp=\d+")
RATES = (r"Consume TPS: \d+\.\d+",)
FILES = (r"\d{13}/",)

CASES = [
    Case("consumerProgress", (r"^Billing 1 V4_9_4 PULL ", r"^Shipping 1 V4_9_4 PUSH CLUSTERING "), whole=False),
    Case("consumerProgress -g Billing", (r"^Orders NAME 0 3 2 1 TIME$", r"^Diff Total: 2$"), hides=RATES),
    Case("consumerProgress -g Shipping -s true", (r"^Payments NAME 0 2 1 10.0.0.9 1 TIME$", r"#Client IP"), hides=RATES),
    Case("consumerProgress -g Missing", (NO_GROUP,)),
    Case("consumerProgress -g Billing --no-such-option", (r"usage",), exit_code=1),
    Case(
        "consumerConnection -g Billing",
        (
            r"^wire-Billing \.\. JAVA V4_9_4$",
            r"^Orders \*$",
            r"^ConsumeType: CONSUME_ACTIVELY$",
            r"^MessageModel: CLUSTERING$",
        ),
        hides=PORTS,
    ),
    Case(
        "consumerConnection -g Shipping -b {broker}",
        (r"^CLIENT \.\. JAVA", r"^ConsumeType: CONSUME_PASSIVELY$"),
        hides=PORTS,
    ),
    Case("consumerConnection -g Missing", (NO_GROUP,)),
    Case("consumerConnection -g Missing -b {broker}", (r"CODE 206: the consumer group\[Missing\] not online",)),
    Case("consumerConnection -b {broker}", (r"usage",), exit_code=1),
    Case("producerConnection -g Refunds -t Orders", (r"^0001 wire-Refunds \.\. JAVA V4_9_4$",), hides=PORTS),
    Case("producerConnection -g Missing -t Orders", (r"CODE 1: the producer group\[Missing\] not exist",)),
    Case("producerConnection -g Refunds -t Missing", (r"CODE 17: No topic route info",), whole=False),
    Case(
        "producer -b {broker}",
        (r"^producer group \(Refunds\) instance : clientId=wire-Refunds,remoteIP=/\.\., language=JAVA, version=401",),
        whole=False,
        hides=PORTS,
    ),
    Case("producer -b 127.0.0.1:1", (r"connect failed",)),
    Case(
        "consumerStatus -g Shipping -i {client}",
        (
            r"^PROP_CONSUME_TYPE : CONSUME_PASSIVELY$",
            r"^001 Topic: Payments ClassFilter: false SubExpression: \*$",
            r"^Payments NAME 0 ProcessQueueInfo \[commitOffset=2, ",
            r"^Payments 2.00 0.50 1.50 0.50 0.25 1$",
        ),
    ),
    Case(
        "consumerStatus -g Shipping",
        (r"^1 CLIENT V4_9_4 \.\.CLIENT$", r"^Same subscription in the same group of consumer$", r"^Rebalance OK$"),
        hides=FILES,
    ),
    Case("consumerStatus -g Missing", (NO_GROUP,)),
    Case("consumerStatus -g Shipping -i nobody", (r"CODE 1: The Consumer <Shipping> <nobody> not online",)),
]
