"""Cases of the commands for access rules."""

from tests.interop.mqadmin_matrix.case import Case

OBJECT = r"org.apache.rocketmq.common.PlainAccessConfig@\w+|account's accesskey is:newKey0001"

CASES = [
    Case(
        "getAclConfig -b {broker}",
        (r"globalWhiteRemoteAddresses *: \[10.10.103.\*\]", r"accessKey : matrixAdmin", r"admin : true"),
    ),
    Case("getAclConfig -c {cluster}", (r"accessKey : matrixAdmin",)),
    Case("getAclConfig -b {broker}", (r"AclException",), whole=False, signed=False),
    Case(
        "updateAclConfig -b {broker} -a newKey0001 -s newSecret01 -w 127.0.0.1 -i DENY -u SUB -t topicA=DENY,topicB=PUB|SUB"
        " -g groupA=DENY -m false",
        (r"create or update plain access config to BROKER success.",),
        hides=(OBJECT,),
    ),
    Case(
        "getAclConfig -b {broker}",
        (r"accessKey : newKey0001", r"topicPerms : \[topicA=DENY, topicB=PUB\|SUB\]"),
        settles=True,
    ),
    Case(
        "updateAclConfig -c {cluster} -a newKey0001 -s newSecret02",
        (r"create or update plain access config to BROKER success.",),
        hides=(OBJECT,),
    ),
    Case("getAclConfig -b {broker}", (r"secretKey : newSecret02",), settles=True),
    Case("updateAclConfig -b {broker} -a ab -s cd", (r"CODE 209: .*accessKey=ab.*",), whole=False),
    Case("updateAclConfig -a newKey0001 -s newSecret02", (r"usage",), exit_code=1),
    Case(
        "clusterAclConfigVersion -c {cluster}",
        (r"^CLUSTER NAME BROKER \.\. 2 TIME$",),
        hides=(r"\S*/plain_acl.yml",),
        at_apache=(r"^CLUSTER NAME BROKER \.\.",),
        why="at times 1: a reload of the file sets the version that it has read",
    ),
    Case("clusterAclConfigVersion -b {broker}", (r"get broker's plain access config version success.",), whole=False),
    Case("deleteAclConfig -b {broker} -a newKey0001", (r"delete plain access config account from BROKER success.",)),
    Case("deleteAclConfig -b {broker} -a noSuchKey", (r"CODE 210: .*noSuchKey.*",), whole=False),
    Case("deleteAclConfig -a newKey0001", (r"usage",), exit_code=1),
    Case(
        "updateGlobalWhiteAddr -b {broker} -g 10.10.103.*,192.168.0.*",
        (r"update global white remote addresses to BROKER success.",),
    ),
    Case("getAclConfig -b {broker}", (r"globalWhiteRemoteAddresses *: \[10.10.103.\*, 192.168.0.\*\]",), settles=True),
    Case("updateGlobalWhiteAddr -c NoSuchCluster -g 10.10.103.*", (r"unknown cluster",)),
    Case("updateGlobalWhiteAddr -b {broker}", (r"usage",), exit_code=1),
    Case("getAclConfig", (r"usage",), exit_code=1),
]
