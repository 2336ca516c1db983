package tour;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The demonstration's client in Java: sends and consumes messages of six kinds.
 *
 *   mvn -q package dependency:copy-dependencies
 *   java -cp 'target/*:target/dependency/*' tour.Tour 127.0.0.1:9876
 *
 * Prints `SENT kind count`, `CONSUMED kind count` and for each delayed message `LATE delay-seconds client-ms store-ms`: how
 * long after its due time it was consumed, and stored for consumers.
 */
public class Tour {
    static final int PLAIN = 120, TAGGED = 60, KEYED = 40, DELAYED = 20, ORDERS = 5, STEPS = 12, BATCHES = 4, BATCH = 10;
    static final int QUEUES = 4;
    static final long PATIENCE_MS = 60_000;

    final String nameServer;
    final Map<String, AtomicInteger> sent = new ConcurrentHashMap<>(), consumed = new ConcurrentHashMap<>();
    final Set<String> seen = ConcurrentHashMap.newKeySet();
    final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    final List<String> disorders = new ArrayList<>();

    Tour(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        boolean complete = new Tour(args[0]).run();
        System.exit(complete ? 0 : 1);
    }

    boolean run() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("TourProducer");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        for (String topic : List.of("TourPlain", "TourTagged", "TourKeyed", "TourDelayed", "TourOrdered", "TourBatch")) {
            producer.createTopic("TBW102", topic, QUEUES, Map.of());
        }
        startConsumers();

        sendPlain(producer);
        sendTagged(producer);
        sendKeyed(producer);
        sendOrdered(producer);
        sendBatch(producer);
        // A consumer of 5.x pulls for the first time 1.5 s after its start: messages due earlier would wait for it.
        boolean complete = waitForAll();
        sendDelayed(producer);
        sent.forEach((kind, count) -> System.out.println("SENT " + kind + " " + count));

        complete &= waitForAll();
        consumed.forEach((kind, count) -> System.out.println("CONSUMED " + kind + " " + count));
        disorders.forEach(line -> System.out.println("DISORDER " + line));
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        producer.shutdown();
        return complete && disorders.isEmpty();
    }

    // Sending

    void sendPlain(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < PLAIN; i++) {
            check("plain", 1, producer.send(message("TourPlain", "plain " + i)));
        }
    }

    void sendTagged(DefaultMQProducer producer) throws Exception {
        String[] tags = {"red", "green", "blue"};
        for (int i = 0; i < TAGGED; i++) {
            Message message = message("TourTagged", "tagged " + i);
            // A group's offset stays behind the last message it received, so each queue ends with a message for both groups.
            message.setTags(i < TAGGED - QUEUES ? tags[i % tags.length] : "white");
            check("tagged", 1, producer.send(message));
        }
    }

    void sendKeyed(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < KEYED; i++) {
            Message message = message("TourKeyed", "keyed " + i);
            message.setKeys("order-" + i); // mqadmin queryMsgByKey -t TourKeyed -k order-7
            check("keyed", 1, producer.send(message));
        }
    }

    void sendDelayed(DefaultMQProducer producer) throws Exception {
        for (int i = 0; i < DELAYED; i++) {
            Message message = message("TourDelayed", "delayed " + i);
            message.setDelayTimeLevel(1 + i % 2); // level 1 is one second, level 2 is five
            check("delayed", 1, producer.send(message));
        }
    }

    /** Messages of one order go to one queue, so they are consumed in the order in which they were sent. */
    void sendOrdered(DefaultMQProducer producer) throws Exception {
        for (int step = 0; step < STEPS; step++) {
            for (int order = 0; order < ORDERS; order++) {
                Message message = message("TourOrdered", order + " " + step);
                check("ordered", 1, producer.send(message, (queues, m, key) -> queues.get((int) key % queues.size()), order));
            }
        }
    }

    void sendBatch(DefaultMQProducer producer) throws Exception {
        for (int b = 0; b < BATCHES; b++) {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < BATCH; i++) {
                batch.add(message("TourBatch", "batch " + b + " " + i));
            }
            check("batch", BATCH, producer.send(batch));
        }
    }

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    void check(String kind, int count, SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(kind + " was not sent: " + result);
        }
        sent.computeIfAbsent(kind, k -> new AtomicInteger()).addAndGet(count);
    }

    // Consuming

    void startConsumers() throws Exception {
        MessageListenerConcurrently counting = (messages, context) -> {
            messages.forEach(this::count);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        DefaultMQPushConsumer all = consumer("TourConsumer");
        for (String topic : List.of("TourPlain", "TourKeyed", "TourDelayed", "TourBatch")) {
            all.subscribe(topic, "*");
        }
        all.registerMessageListener(counting);
        all.start();

        DefaultMQPushConsumer red = consumer("TourRed"); // two groups, each with its own tags
        red.subscribe("TourTagged", "red || white");
        red.registerMessageListener(counting);
        red.start();
        DefaultMQPushConsumer others = consumer("TourGreenBlue");
        others.subscribe("TourTagged", "green || blue || white");
        others.registerMessageListener(counting);
        others.start();

        Map<String, Integer> lastStep = new ConcurrentHashMap<>();
        DefaultMQPushConsumer orderly = consumer("TourOrderly");
        orderly.subscribe("TourOrdered", "*");
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String[] body = new String(message.getBody(), StandardCharsets.UTF_8).split(" ");
                int step = Integer.parseInt(body[1]);
                Integer before = lastStep.put(body[0], step);
                if (step != (before == null ? 0 : before + 1)) {
                    disorders.add("order " + body[0] + ": step " + step + " after " + before);
                }
                count(message);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        orderly.start();
    }

    DefaultMQPushConsumer consumer(String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumers.add(consumer);
        return consumer;
    }

    void count(MessageExt message) {
        if (!seen.add(message.getTopic() + "@" + message.getQueueId() + "@" + message.getQueueOffset())) {
            return; // duplicates are possible
        }
        String kind = message.getTopic().substring("Tour".length()).toLowerCase();
        if (kind.equals("delayed")) {
            int seconds = message.getDelayTimeLevel() == 1 ? 1 : 5;
            long due = message.getBornTimestamp() + seconds * 1000L;
            long consumed = System.currentTimeMillis();
            synchronized (System.out) {
                System.out.println("LATE " + seconds + " " + (consumed - due) + " " + (message.getStoreTimestamp() - due));
            }
        }
        consumed.computeIfAbsent(kind, k -> new AtomicInteger()).incrementAndGet();
    }

    boolean waitForAll() throws InterruptedException {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (total(consumed) < total(sent) && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
        return total(consumed) == total(sent);
    }

    static int total(Map<String, AtomicInteger> counts) {
        return counts.values().stream().mapToInt(AtomicInteger::get).sum();
    }
}
