package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.pocketmq.junit5.MessageType;
import org.pocketmq.junit5.PocketMQ;
import org.pocketmq.junit5.PocketMQTest;

@PocketMQTest
class OrderTimeoutTest {
    private static final int LEVEL_OF_30_MINUTES = 16;

    private final String address;

    OrderTimeoutTest(PocketMQ mq) {
        address = mq.namesrvAddr();
    }

    @Test
    void anUnpaidOrderTimesOutAfterHalfAnHour(PocketMQ mq) throws Exception {
        assertEquals(address, mq.namesrvAddr(), "a test got another server than its class");
        String topic = mq.createTopic("Orders", MessageType.DELAY);
        BlockingQueue<String> timedOut = new LinkedBlockingQueue<>();
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(mq.namesrvAddr());
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("timeout");
        consumer.setNamesrvAddr(mq.namesrvAddr());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> timedOut.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            Message order = new Message(topic, "A1".getBytes(StandardCharsets.UTF_8));
            order.setDelayTimeLevel(LEVEL_OF_30_MINUTES);
            producer.send(order);
            Instant before = mq.now();
            mq.advanceClock(Duration.ofMinutes(29));
            assertNull(timedOut.poll(1, TimeUnit.SECONDS));
            assertEquals(before.plus(Duration.ofMinutes(30)), mq.advanceClock(Duration.ofMinutes(1)));
            assertEquals("A1", timedOut.poll(60, TimeUnit.SECONDS));
        } finally {
            consumer.shutdown();
            producer.shutdown();
        }
    }

    @Nested
    class Inside {
        @Test
        void aNestedClassSharesTheServer(PocketMQ mq) {
            assertEquals(address, mq.namesrvAddr());
            assertTrue(mq.grpcEndpoint().isEmpty() || mq.grpcEndpoint().matches("127.0.0.1:\\d+"), mq.grpcEndpoint());
            assertTrue(mq.metricsUrl().startsWith("http://127.0.0.1:"), mq.metricsUrl());
        }
    }
}
