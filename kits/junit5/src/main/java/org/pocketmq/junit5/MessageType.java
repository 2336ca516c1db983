package org.pocketmq.junit5;

/** The kinds of messages that a topic takes: RocketMQ's attribute {@code message.type}. */
public enum MessageType {
    NORMAL,
    FIFO,
    DELAY,
    TRANSACTION,
    PRIORITY,
    MIXED
}
