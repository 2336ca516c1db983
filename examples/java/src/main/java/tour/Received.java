package tour;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedMap;
import java.util.TreeMap;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** A listener that keeps the messages by their bodies: a message may be delivered twice, and is kept once. */
final class Received implements MessageListenerConcurrently {
    private static final long PATIENCE_MS = 60_000;

    private final SortedMap<String, MessageExt> messages = new TreeMap<>();
    private final SortedMap<String, Long> times = new TreeMap<>();

    @Override
    public synchronized ConsumeConcurrentlyStatus consumeMessage(
            List<MessageExt> batch, ConsumeConcurrentlyContext context) {
        for (MessageExt message : batch) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            messages.putIfAbsent(body, message);
            times.putIfAbsent(body, System.currentTimeMillis());
        }
        notifyAll();
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS; // RECONSUME_LATER: the messages are delivered again later
    }

    /** Waits for so many messages and returns their bodies, sorted. */
    synchronized List<String> await(int count) throws InterruptedException {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (messages.size() < count) {
            long left = deadline - System.currentTimeMillis();
            if (left <= 0) {
                throw new IllegalStateException("consumed " + messages.keySet() + " instead of " + count + " messages");
            }
            wait(left);
        }
        return new ArrayList<>(messages.keySet());
    }

    synchronized MessageExt message(String body) {
        return messages.get(body);
    }

    /** Returns the time at which a message was consumed, in milliseconds since 1970. */
    synchronized long time(String body) {
        return times.get(body);
    }

    /** Has a group consume all messages of a topic, until there are so many; returns their bodies, sorted. */
    static List<String> all(String nameServer, String group, String topic, int count) throws Exception {
        Received received = new Received();
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(received);
        consumer.start();
        try {
            return received.await(count);
        } finally {
            consumer.shutdown();
        }
    }
}
