import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The gRPC client for Java, case by case: ENDPOINT CASE TOPIC GROUP [rows=N] [wait_s=S].
 *
 * <p>Prints a line of JSON for each message consumed and for each other fact that a test compares. The drivers in the other
 * languages have the same cases, and the same functions in the same order.
 */
public final class Driver {
    private static final Duration REQUEST_TIMEOUT = Duration.ofSeconds(10);  // servers beside a heavy load
    private static final Duration AWAIT = Duration.ofSeconds(6);  // Apache's proxy refuses less than 5
    private static final Duration INVISIBLE = Duration.ofSeconds(30);
    private static final Duration SHORTER = Duration.ofSeconds(10);
    private static final Duration SOON = Duration.ofSeconds(2);
    private static final Duration LATER = Duration.ofSeconds(20);
    private static final FilterExpression ALL = FilterExpression.SUB_ALL;
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Map<String, Case> CASES = Map.ofEntries(
        Map.entry("normal", Driver::normal), Map.entry("send", Driver::sendThree), Map.entry("push", Driver::push),
        Map.entry("fifo", Driver::fifo), Map.entry("delay", Driver::delay), Map.entry("recall", Driver::recall),
        Map.entry("transaction", Driver::transaction), Map.entry("orphan-send", Driver::orphanSend),
        Map.entry("orphan-check", Driver::orphanCheck), Map.entry("tag", Driver::tag), Map.entry("sql", Driver::sql),
        Map.entry("dlq", Driver::dlq), Map.entry("invisible", Driver::invisible), Map.entry("hold", Driver::hold),
        Map.entry("drain", Driver::drain), Map.entry("ask", Driver::ask));

    private static final Map<String, Integer> options = new HashMap<>();
    private static final Object changed = new Object();
    private static String endpoint, topic, group;
    private static int rows;
    private static long endMs;

    private interface Case {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        try {
            endpoint = arguments[0];
            topic = arguments[2];
            group = arguments[3];
            for (String option : Arrays.copyOfRange(arguments, 4, arguments.length)) {
                options.put(option.split("=")[0], Integer.valueOf(option.split("=")[1]));
            }
            endMs = System.currentTimeMillis() + 1000L * options.getOrDefault("wait_s", 60);
            CASES.get(arguments[1]).run();
            System.exit(0);  // the client's threads would keep the process alive
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    // The cases

    private static void normal() throws Exception {
        sendThree();
        try (SimpleConsumer consumer = startSimple()) {
            receive(consumer, 3, message -> showRow(text(message), message.getDeliveryAttempt(), message.getTag().orElse(null),
                String.join(" ", message.getKeys()), message.getProperties().get("index")));
            showNote("rest", consumer.receive(16, INVISIBLE).size());
        }
    }

    private static void push() throws Exception {
        startPush(ALL, 20, failOnce("m1"));
        sendThree();
        awaitRows(4);
    }

    private static void fifo() throws Exception {
        startPush(ALL, 20, failOnce("o1"));
        try (Producer producer = startProducer(TransactionResolution.UNKNOWN)) {
            for (String body : List.of("o0", "o1", "o2", "o3")) {
                producer.send(message(body, with -> with.setMessageGroup("one")));
            }
        }
        awaitRows(5);
    }

    private static void delay() throws Exception {
        long[] sentMs = {0};
        startPush(ALL, 20, message -> {
            showRow(text(message), message.getDeliveryAttempt(), System.currentTimeMillis() - sentMs[0]);
            return true;
        });
        try (Producer producer = startProducer(TransactionResolution.UNKNOWN)) {
            sentMs[0] = System.currentTimeMillis();
            producer.send(delayed("in 2 s", SOON));
        }
        awaitRows(1);
    }

    private static void recall() throws Exception {
        startPush(ALL, 20, failOnce());
        try (Producer producer = startProducer(TransactionResolution.UNKNOWN)) {
            SendReceipt receipt = producer.send(delayed("x", LATER));
            producer.send(delayed("y", SOON));
            producer.recallMessage(topic, receipt.getRecallHandle());
            showNote("recalled", true);
        }
        awaitRows(1);
    }

    private static void transaction() throws Exception {
        startPush(ALL, 20, failOnce());
        try (Producer producer = startProducer(TransactionResolution.COMMIT)) {
            sendHalf(producer, "committed").commit();
            sendHalf(producer, "rolled back").rollback();
            sendHalf(producer, "asked");
            awaitRows(2);
        }
    }

    private static void orphanSend() throws Exception {
        sendHalf(startProducer(TransactionResolution.UNKNOWN), "orphan");
        showReady();
        stay();
    }

    private static void orphanCheck() throws Exception {
        startPush(ALL, 20, failOnce());
        try (Producer producer = startProducer(TransactionResolution.COMMIT)) {
            awaitRows(1);
        }
    }

    private static void tag() throws Exception {
        startPush(new FilterExpression("a", FilterExpressionType.TAG), 20, failOnce());
        sendThree();
        awaitRows(2);
    }

    private static void sql() throws Exception {
        startPush(new FilterExpression("index > 1", FilterExpressionType.SQL92), 20, failOnce());
        sendThree();
        awaitRows(1);
    }

    /** Closes the consumer: else the proxy would keep the message for it, as for a consumer that still works on it. */
    private static void dlq() throws Exception {
        Predicate<MessageView> fail = message -> {
            showRow(text(message), message.getDeliveryAttempt());
            return false;
        };
        try (PushConsumer consumer = startPush(ALL, 20, fail);
            Producer producer = startProducer(TransactionResolution.UNKNOWN)) {
            producer.send(message("d0", with -> { }));
            awaitRows(2);
        }
    }

    private static void invisible() throws Exception {
        try (Producer producer = startProducer(TransactionResolution.UNKNOWN); SimpleConsumer consumer = startSimple()) {
            producer.send(message("x", with -> { }));
            MessageView first = receiveOne(consumer);
            showRow(text(first), first.getDeliveryAttempt());
            consumer.changeInvisibleDuration(first, SHORTER);
            long changedMs = System.currentTimeMillis();
            MessageView second = receiveOne(consumer);
            showRow(text(second), second.getDeliveryAttempt());
            showNote("waited_ms", System.currentTimeMillis() - changedMs);
            consumer.ack(second);
        }
    }

    private static void hold() throws Exception {
        int wanted = options.get("rows");
        startPush(ALL, wanted, message -> {
            showRow(text(message), message.getDeliveryAttempt());
            stay();
            return true;
        });
        if (!awaitRows(wanted)) {
            throw new IllegalStateException("too few messages came");
        }
        showReady();
        stay();
    }

    private static void drain() throws Exception {
        try (SimpleConsumer consumer = startSimple()) {
            receive(consumer, options.get("rows"), message -> showRow(text(message), message.getDeliveryAttempt()));
        }
    }

    private static void ask() throws Exception {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> Runtime.getRuntime().halt(0)));  // at SIGTERM
        startPush(ALL, 20, failOnce());
        showReady();
        stay();
    }

    // Producers

    private static ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false)
            .setRequestTimeout(REQUEST_TIMEOUT).build();
    }

    /** Starts a producer; `checked` is its answer to all checks of transactions. */
    private static Producer startProducer(TransactionResolution checked) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration()).setTopics(topic)
            .setTransactionChecker(message -> checked).build();
    }

    private static Message message(String body, Consumer<MessageBuilder> more) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
        more.accept(builder);
        return builder.build();
    }

    private static Message delayed(String body, Duration delay) {
        return message(body, with -> with.setDeliveryTimestamp(System.currentTimeMillis() + delay.toMillis()));
    }

    private static void sendThree() throws Exception {
        try (Producer producer = startProducer(TransactionResolution.UNKNOWN)) {
            for (int index = 0; index < 3; index++) {
                String tag = index == 1 ? "b" : "a", value = "" + index;
                producer.send(message("m" + value,
                    with -> with.setTag(tag).setKeys("k" + value).addProperty("index", value)));
            }
        }
    }

    private static Transaction sendHalf(Producer producer, String body) throws Exception {
        Transaction transaction = producer.beginTransaction();
        producer.send(message(body, with -> { }), transaction);
        return transaction;
    }

    // Consumers

    /** Starts a push consumer; `consume` returns whether it has consumed a message. */
    private static PushConsumer startPush(FilterExpression expression, int threads, Predicate<MessageView> consume)
        throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration()).setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, expression)).setConsumptionThreadCount(threads)
            .setMessageListener(message -> consume.test(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE).build();
    }

    /** Returns a listener that shows each message, and fails once for each of the bodies. */
    private static Predicate<MessageView> failOnce(String... bodies) {
        Set<String> failing = ConcurrentHashMap.newKeySet();
        failing.addAll(List.of(bodies));
        return message -> {
            showRow(text(message), message.getDeliveryAttempt());
            return !failing.remove(text(message));
        };
    }

    private static SimpleConsumer startSimple() throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration()).setConsumerGroup(group)
            .setAwaitDuration(AWAIT).setSubscriptionExpressions(Map.of(topic, ALL)).build();
    }

    /** Shows and acknowledges messages until there are as many as wanted. */
    private static void receive(SimpleConsumer consumer, int wanted, Consumer<MessageView> show) throws Exception {
        while (rows < wanted && System.currentTimeMillis() < endMs) {
            for (MessageView message : consumer.receive(16, INVISIBLE)) {
                show.accept(message);
                consumer.ack(message);
            }
        }
    }

    private static MessageView receiveOne(SimpleConsumer consumer) throws Exception {
        while (System.currentTimeMillis() < endMs) {
            for (MessageView message : consumer.receive(1, INVISIBLE)) {
                return message;
            }
        }
        throw new IllegalStateException("no message came");
    }

    /** Waits for as many rows as wanted; returns whether they came in time. */
    private static boolean awaitRows(int wanted) throws InterruptedException {
        synchronized (changed) {
            while (rows < options.getOrDefault("rows", wanted) && System.currentTimeMillis() < endMs) {
                changed.wait(100);
            }
            return rows >= wanted;
        }
    }

    private static void stay() {
        try {
            Thread.currentThread().join();
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    // What is printed

    private static String text(MessageView message) {
        return StandardCharsets.UTF_8.decode(message.getBody().duplicate()).toString();
    }

    private static void showRow(Object... values) {
        synchronized (changed) {
            System.out.println("{\"row\": " + json(values) + "}");
            rows++;
            changed.notifyAll();
        }
    }

    private static void showNote(String name, Object value) {
        System.out.println("{\"note\": " + json(name) + ", \"value\": " + json(value) + "}");
    }

    private static void showReady() {
        System.out.println("{\"ready\": true}");
    }

    private static String json(Object value) {
        if (value instanceof Object[]) {
            return Arrays.stream((Object[]) value).map(Driver::json).collect(Collectors.joining(", ", "[", "]"));
        }
        return value instanceof String ? "\"" + ((String) value).replace("\\", "\\\\").replace("\"", "\\\"") + "\"" : "" + value;
    }
}
