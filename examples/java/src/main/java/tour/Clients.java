package tour;

import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** A producer and a consumer as most kinds need them. */
final class Clients {
    /** Starts a producer. A topic that does not exist is created by its first message. */
    static DefaultMQProducer producer(String nameServer) throws MQClientException {
        DefaultMQProducer producer = new DefaultMQProducer("TourProducer");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        return producer;
    }

    /** Returns a consumer that has not been started: it needs a subscription and a listener. */
    static DefaultMQPushConsumer consumer(String nameServer, String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        // A new group begins with the oldest message; by default it begins with those sent after its start.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    /** Throws if the broker did not store the message as configured. */
    static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("not sent: " + result);
        }
    }
}
