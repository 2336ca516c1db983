package shop;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;
import org.pocketmq.junit5.PocketMQ;
import org.pocketmq.junit5.PocketMQTest;

@PocketMQTest(testClock = false, settings = {"autoCreateTopicEnable=false", "brokerName=shop"})
class SystemClockTest {
    @Test
    void theMachinesClockIsNotAdvanced(PocketMQ mq) {
        Duration apart = Duration.between(mq.now(), Instant.now()).abs();
        assertTrue(apart.compareTo(Duration.ofMinutes(1)) < 0, apart::toString);
        Exception refusal = assertThrows(IllegalStateException.class, () -> mq.advanceClock(Duration.ofSeconds(1)));
        assertTrue(refusal.getMessage().contains("--test-clock"), refusal.getMessage());
    }

    @Test
    void settingsReachTheBroker(PocketMQ mq) throws Exception {
        assertTrue(mq.output().contains("broker[shop]"), mq.output());
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(mq.namesrvAddr());
        producer.start();
        try {
            assertThrows(MQClientException.class, () -> producer.send(new Message("Unknown", new byte[1])));
            producer.send(new Message(mq.createTopic("Known"), new byte[1]));
        } finally {
            producer.shutdown();
        }
    }

    @Test
    void aTopicWithAnInvalidNameIsRefused(PocketMQ mq) {
        Exception refusal = assertThrows(IllegalStateException.class, () -> mq.createTopic("a \"quoted\" name"));
        assertTrue(refusal.getMessage().contains("illegal characters"), refusal.getMessage());
    }
}
