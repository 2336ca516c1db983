"""Cases of the commands for name servers."""

from tests.interop.mqadmin_matrix.case import Case

COUNT = (r"(?<=OK, )\d\d+",)

CASES = [
    Case("updateKvConfig -s Names -k key -v value", (r"create or update kv config to namespace success.",)),
    Case("deleteKvConfig -s Names -k key", (r"delete kv config from namespace success.",)),
    Case("deleteKvConfig -s Missing -k key", (r"delete kv config from namespace success.",)),
    Case("updateKvConfig -s Names -k key", (r"usage",), exit_code=1),
    Case("getNamesrvConfig", (r"^=+NAMESRV=+$", r"^orderMessageEnable = false$", r"^listenPort = "), whole=False),
    Case("updateNamesrvConfig -k orderMessageEnable -v true", (r"update name server config success!\[NAMESRV\]",)),
    Case("getNamesrvConfig", (r"^orderMessageEnable = true$",), whole=False),
    Case(
        "updateNamesrvConfig -k noSuchKey -v 1",
        (r"noSuchKey",),
        whole=False,
        at_apache=(r"update name server config success!\[NAMESRV\]",),
        why="4.9.4 answers success to any key",
    ),
    Case("updateNamesrvConfig -k orderMessageEnable", (r"usage",), exit_code=1),
    Case("wipeWritePerm -b {name}", (r"wipe write perm of broker\[NAME\] in name server\[NAMESRV\] OK, \.\.",), hides=COUNT),
    Case("topicRoute -t Orders", (r'"perm": 4',)),
    Case("addWritePerm -b {name}", (r"add write perm of broker\[NAME\] in name server\[NAMESRV\] OK, \.\.",), hides=COUNT),
    Case("topicRoute -t Orders", (r'"perm": 6',)),
    Case("wipeWritePerm -b missing", (r"wipe write perm of broker\[missing\] in name server\[NAMESRV\] OK, 0",)),
    Case("addWritePerm -b missing", (r"add write perm of broker\[missing\] in name server\[NAMESRV\] OK, 0",)),
    Case("wipeWritePerm", (r"usage",), exit_code=1),
]
