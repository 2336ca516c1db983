"""The sub-commands by family: name and summary of each. A family is a module here, imported when it is used."""

from typing import Final

FAMILIES: Final[dict[str, dict[str, str]]] = {
    "cluster": {
        "clusterList": "List clusters and brokers, with load and disk usage",
    },
    "topic": {
        "updateTopic": "Create a topic, or change one",
        "updateTopicList": "Create or change the topics listed in a file (5.x)",
        "updateTopicPerm": "Change the permission of a topic",
        "updateOrderConf": "Show, set or delete the queues of an ordered topic",
        "deleteTopic": "Delete a topic from brokers and name servers",
    },
    "route": {
        "topicList": "List the topics",
        "topicRoute": "Show a topic's route",
        "topicStatus": "Show offsets and last update of a topic's queues",
        "topicClusterList": "Show the clusters that have a topic",
        "allocateMQ": "Show which queues each of the given clients would consume",
    },
    "group": {
        "updateSubGroup": "Create a consumer group, or change one",
        "updateSubGroupList": "Create or change the consumer groups listed in a file (5.x)",
        "deleteSubGroup": "Delete a consumer group from brokers",
        "getConsumerConfig": "Show the config of a consumer group",
        "setConsumeMode": "Let a consumer group pull from a topic, or pop (5.x)",
    },
    "consumer": {
        "consumerProgress": "Show how far consumer groups have consumed",
        "consumerStatus": "Show settings, queues and rates of a group's clients",
        "consumerConnection": "Show the clients and subscriptions of a group",
        "producerConnection": "Show the clients of a producer group",
        "producer": "Show the clients of all producer groups of a broker",
    },
    "offset": {
        "resetOffsetByTime": "Reset the consumer offsets of a group to a point in time",
        "skipAccumulatedMessage": "Set the consumer offsets of a group to the end",
        "cloneGroupOffset": "Copy the consumer offsets of a group to another",
    },
    "message_query": {
        "queryMsgById": "Show a message by its offset id, or send it again",
        "queryMsgByKey": "List the messages that have a key",
        "queryMsgByUniqueKey": "Show a message by its unique key",
        "queryMsgByOffset": "Show the message at a queue offset",
        "queryMsgTraceById": "Show when a message was sent and consumed",
        "queryCq": "Show units of a ConsumeQueue",
    },
    "message_print": {
        "printMsg": "Print the messages of a topic",
        "printMsgByQueue": "Print or count the messages of a queue",
        "consumeMessage": "Pull messages and print them, up to a number",
    },
    "send": {
        "sendMessage": "Send a message",
        "sendMsgStatus": "Send messages to a broker, and show each result",
        "checkMsgSendRT": "Measure how long sends to a topic take",
        "clusterRT": "Measure how long sends to all brokers take, again and again",
    },
    "statistics": {
        "statsAll": "Show rates and numbers of messages of all topics and groups",
        "brokerConsumeStats": "Show the consumer offsets of all groups at a broker",
    },
    "broker": {
        "brokerStatus": "Show the runtime info of brokers",
        "getBrokerConfig": "Show the config of brokers",
        "updateBrokerConfig": "Change a key of the config of running brokers",
        "haStatus": "Show the replication of brokers (5.x)",
        "cleanExpiredCQ": "Delete expired ConsumeQueue files",
        "deleteExpiredCommitLog": "Delete expired CommitLog files",
        "cleanUnusedTopic": "Delete the queues of topics that no longer exist",
    },
    "nameserver": {
        "getNamesrvConfig": "Show the config of name servers",
        "updateNamesrvConfig": "Change a key of the config of name servers",
        "updateKvConfig": "Set a value in the name servers' KV config",
        "deleteKvConfig": "Delete a key from the name servers' KV config",
        "wipeWritePerm": "Take the write permission from all topics of a broker",
        "addWritePerm": "Restore the write permission of all topics of a broker",
    },
    "monitor": {
        "startMonitoring": "Report consumer groups that lag, round by round",
    },
    "export": {
        "exportMetadata": "Write topics and consumer groups to a file",
        "exportConfigs": "Write the important config keys of a cluster to a file",
        "exportMetrics": "Write the figures of a cluster to a file",
    },
    "acl": {
        "updateAclConfig": "Create or change an account",
        "deleteAclConfig": "Delete an account",
        "getAclConfig": "Show all accounts",
        "clusterAclConfigVersion": "Show the versions of the ACL files",
        "updateGlobalWhiteAddr": "Set the addresses that need no signature",
    },
    "auth": {
        "createUser": "Create a user (5.x)",
        "updateUser": "Change the password, the type or the status of a user (5.x)",
        "deleteUser": "Delete a user and its ACL (5.x)",
        "getUser": "Show a user with its password (5.x)",
        "listUser": "List the users with their passwords (5.x)",
        "copyUser": "Copy users from one broker to another (5.x)",
        "createAcl": "Allow or deny a user actions on resources (5.x)",
        "updateAcl": "Change what a user is allowed or denied on resources (5.x)",
        "deleteAcl": "Delete a user's ACL, or its entry for a resource (5.x)",
        "getAcl": "Show the ACL of a user (5.x)",
        "listAcl": "List the ACLs of all users (5.x)",
        "copyAcl": "Copy ACLs from one broker to another (5.x)",
    },
}
