import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The gRPC client for Java: sends messages of every kind, and prints each received message as a line: group, body,
 * delivery attempt, milliseconds since it was sent. Ends when `rows` lines are printed, or after `seconds`.
 *
 * <p>Arguments: endpoint, rows, seconds, then the topics for normal, ordered, delayed and transactional messages.
 */
public final class GrpcClient {
    private static final int DELAY_MS = 2000;
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Map<String, Long> SENT_MS = new ConcurrentHashMap<>();
    private static int rows;
    private static ClientConfiguration configuration;

    public static void main(String[] arguments) {
        try {
            run(arguments);
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);  // the client's threads would keep the process alive
        }
    }

    private static void run(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0]).enableSsl(false).build();
        String normal = arguments[3], ordered = arguments[4], delayed = arguments[5], transactional = arguments[6];
        consume("all", normal, FilterExpression.SUB_ALL, "m1");
        consume("by-tag", normal, new FilterExpression("A", FilterExpressionType.TAG));
        consume("by-sql", normal, new FilterExpression("number > 1", FilterExpressionType.SQL92));
        consume("in-order", ordered, FilterExpression.SUB_ALL, "o1");
        consume("later", delayed, FilterExpression.SUB_ALL);
        consume("decided", transactional, FilterExpression.SUB_ALL);
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(normal, ordered, delayed, transactional)
            .setTransactionChecker(message -> TransactionResolution.COMMIT).build();
        for (int number = 0; number < 3; number++) {
            String tag = number == 0 ? "A" : "B", value = "" + number;
            producer.send(message(normal, "m" + number, with -> with.setTag(tag).setKeys("key" + value).addProperty("number", value)));
        }
        for (int number = 0; number < 4; number++) {
            producer.send(message(ordered, "o" + number, with -> with.setMessageGroup("one")));
        }
        producer.send(message(delayed, "in 2 s", with -> with.setDeliveryTimestamp(System.currentTimeMillis() + DELAY_MS)));
        for (String body : new String[] {"committed", "rolled back", "asked for"}) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message(transactional, body, with -> { }), transaction);
            if (body.equals("committed")) {
                transaction.commit();
            } else if (body.equals("rolled back")) {
                transaction.rollback();
            }
        }
        receive(normal);
        long end = System.currentTimeMillis() + 1000L * Integer.parseInt(arguments[2]);
        synchronized (GrpcClient.class) {
            while (rows < Integer.parseInt(arguments[1]) && System.currentTimeMillis() < end) {
                GrpcClient.class.wait(100);
            }
        }
    }

    /** Starts a push consumer that fails once for each body in `failing`. */
    private static void consume(String group, String topic, FilterExpression expression, String... failing) throws Exception {
        Set<String> toFail = ConcurrentHashMap.newKeySet();
        toFail.addAll(Set.of(failing));
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Map.of(topic, expression))
            .setMessageListener(message -> {
                show(group, message);
                return toFail.remove(text(message.getBody())) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
    }

    private static void receive(String topic) throws Exception {
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup("simple").setAwaitDuration(Duration.ofSeconds(6)) // the proxy refuses less than 5
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build()) {
            for (int left = 3, attempts = 20; left > 0 && attempts > 0; attempts--) {
                for (MessageView message : consumer.receive(16, Duration.ofSeconds(30))) {
                    show("simple", message);
                    consumer.ack(message);
                    left--;
                }
            }
        }
    }

    private static Message message(String topic, String body, Consumer<MessageBuilder> more) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
        more.accept(builder);
        SENT_MS.put(body, System.currentTimeMillis());
        return builder.build();
    }

    private static synchronized void show(String group, MessageView message) {
        String body = text(message.getBody());
        long waitedMs = System.currentTimeMillis() - SENT_MS.getOrDefault(body, 0L);
        System.out.println(String.join("\t", "ROW", group, body, "" + message.getDeliveryAttempt(), "" + waitedMs));
        rows++;
        GrpcClient.class.notifyAll();
    }

    private static String text(ByteBuffer buffer) {
        return StandardCharsets.UTF_8.decode(buffer.duplicate()).toString();
    }
}
