package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.pocketmq.junit5.PocketMQ;
import org.pocketmq.junit5.PocketMQTest;

@PocketMQTest(scope = PocketMQTest.Scope.RUN)
class SecondOfRunTest {
    @Test
    void classesOfARunShareAServer(PocketMQ mq) {
        Seen.ADDRESSES.add(mq.namesrvAddr());
        assertEquals(1, Seen.ADDRESSES.size());
    }
}
