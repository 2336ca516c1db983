package tour;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * A tour of RocketMQ 5 with the official gRPC client for Java: normal, FIFO, delayed and transactional messages.
 *
 * <pre>
 * sh examples/grpc/create_topics.sh 127.0.0.1:9876
 * cd examples/grpc/java
 * mvn -q package dependency:copy-dependencies
 * java -cp 'target/*:target/dependency/*' tour.Tour 127.0.0.1:8081
 * </pre>
 *
 * Prints {@code SENT topic count}, {@code CONSUMED topic count} and for each delayed message {@code LATE ms}: how long after
 * its due time it came.
 */
public final class Tour {
    static final List<String> TOPICS = List.of("TourNormal", "TourFifo", "TourTransaction", "TourDelayed");
    static final int NORMAL = 20, ORDERS = 2, STEPS = 5, TRANSACTIONS = 3, DELAYED = 3;
    static final long DELAY_MS = 5_000, PATIENCE_MS = 60_000;
    static final Duration INVISIBLE = Duration.ofSeconds(30);
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    final Map<String, Integer> sent = new TreeMap<>();
    final Map<String, Integer> consumed = new TreeMap<>();
    final Set<String> seen = new HashSet<>();
    final Map<String, Integer> lastStep = new HashMap<>();
    final List<String> disorders = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        Tour tour = new Tour();
        tour.run(ClientConfiguration.newBuilder().setEndpoints(arguments[0]).enableSsl(false).build());
        tour.sent.forEach((topic, number) -> System.out.println("SENT " + topic + " " + number));
        tour.consumed.forEach((topic, number) -> System.out.println("CONSUMED " + topic + " " + number));
        tour.disorders.forEach(line -> System.out.println("DISORDER " + line));
        System.exit(tour.consumed.equals(tour.sent) && tour.disorders.isEmpty() ? 0 : 1);
    }

    void run(ClientConfiguration configuration) throws Exception {
        // The checker's answer is for transactions of which the server heard nothing, such as those of a producer that was killed.
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
            .setTopics(TOPICS.toArray(new String[0])).setTransactionChecker(half -> TransactionResolution.COMMIT).build()) {
            sendAll(producer);
            for (String topic : TOPICS) {
                receiveAll(configuration, topic);
            }
        }
    }

    void sendAll(Producer producer) throws Exception {
        for (int i = 0; i < NORMAL; i++) {
            producer.send(message("TourNormal", "normal " + i).setTag("tour").setKeys("order-" + i).build());
            sent.merge("TourNormal", 1, Integer::sum);
        }
        for (int step = 0; step < STEPS; step++) { // messages of one group are received in order
            for (int order = 0; order < ORDERS; order++) {
                producer.send(message("TourFifo", order + " " + step).setMessageGroup("order-" + order).build());
                sent.merge("TourFifo", 1, Integer::sum);
            }
        }
        for (int i = 0; i <= TRANSACTIONS; i++) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message("TourTransaction", "transaction " + i).build(), transaction);
            if (i == TRANSACTIONS) {
                transaction.rollback(); // nobody receives it
            } else {
                transaction.commit();
                sent.merge("TourTransaction", 1, Integer::sum);
            }
        }
        for (int i = 0; i < DELAYED; i++) {
            long due = System.currentTimeMillis() + DELAY_MS;
            producer.send(message("TourDelayed", String.valueOf(due)).setDeliveryTimestamp(due).build());
            sent.merge("TourDelayed", 1, Integer::sum);
        }
    }

    void receiveAll(ClientConfiguration configuration, String topic) throws Exception {
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic + "Group").setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build()) {
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (consumed.getOrDefault(topic, 0) < sent.get(topic) && System.currentTimeMillis() < deadline) {
                for (MessageView message : consumer.receive(16, INVISIBLE)) {
                    count(message);
                    consumer.ack(message); // else it comes again after INVISIBLE
                }
            }
        }
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    void count(MessageView message) {
        if (!seen.add(message.getMessageId().toString())) {
            return; // duplicates are possible
        }
        String body = StandardCharsets.UTF_8.decode(message.getBody()).toString();
        consumed.merge(message.getTopic(), 1, Integer::sum);
        if (message.getTopic().equals("TourDelayed")) {
            System.out.println("LATE " + (System.currentTimeMillis() - Long.parseLong(body)));
        }
        if (message.getTopic().equals("TourFifo")) {
            String[] words = body.split(" ");
            int step = Integer.parseInt(words[1]);
            Integer before = lastStep.put(words[0], step);
            if (step != (before == null ? 0 : before + 1)) {
                disorders.add("order " + words[0] + ": step " + step + " after " + before);
            }
        }
    }
}
