"""Cases of the commands that send messages, and of statistics."""

from tests.interop.mqadmin_matrix.case import Case

IDS = (r"[0-9A-F]{32,56}$",)
FIGURES = (r"rt=\d+ms", r"[0-9A-F]{32,56}", r"queueId=\d+", r"queueOffset=\d+")
TIMES = (r"true +\d+$", r"Avg RT: \d+\.\d+")

CASES = [
    Case(
        "sendMessage -t Unit -p hello -k a -c b -b {name} -i 3",
        (r"^NAME 3 SEND_OK \.\.$", r"#Send Result #MsgId"),
        hides=IDS,
    ),
    Case("sendMessage -t Unit -p hello -m true", (r"SEND_OK \.\.$",), whole=False, hides=IDS),
    Case("sendMessage -t Unit -p hello -i 3", (r"Broker name must be set if the queue is chosen!",)),
    Case("sendMessage -t Unit", (r"usage",), exit_code=1),
    Case("sendMessage -t Unit -p hello -b {name} -i 0", (r"CODE 1: .*AclException",), whole=False, signed=False),
    Case("sendMsgStatus -b {name} -s 32 -c 1", (r"SendResult=SendResult \[sendStatus=SEND_OK, msgId=\.\.",), hides=FIGURES),
    Case("sendMsgStatus", (r"usage",), exit_code=1),
    Case("checkMsgSendRT -t Unit -a 9 -s 10", (r"^NAME 0 \.\.$", r"^NAME 7 \.\.$", r"^\.\.$"), hides=TIMES),
    Case("checkMsgSendRT -a 9", (r"usage",), exit_code=1),
    Case("statsAll -t Orders", (r"^Orders Billing 2 ", r"#InMsg24Hour #OutMsg24Hour$"), whole=False),
    Case("statsAll", (r"^Payments Shipping 1 ", r"^Unit 0 ", r"NO_CONSUMER$"), whole=False),
    Case("statsAll --no-such-option", (r"usage",), exit_code=1),
    Case(
        "brokerConsumeStats -b {broker} -l 1",
        (r"^Orders Billing NAME 1 3 2 1 TIME$", r"^Payments Shipping NAME 0 2 1 1 TIME$", r"^Diff Total: 3$"),
    ),
    Case("brokerConsumeStats -b 127.0.0.1:1", (r"connect failed",)),
    Case("brokerConsumeStats", (r"usage",), exit_code=1),
]
