package tour;

import java.util.List;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageRequestMode;

/**
 * A pop consumer holds no queues: the broker gives each message to one consumer of the group for a while, and gives it to
 * another if it is not acknowledged. A slow consumer delays only the messages that it has in hand.
 */
final class Pop {
    static final String TOPIC = "TourPop", GROUP = "TourPopGroup";
    static final int ALL_QUEUES = 0, TIMEOUT_MS = 3000;

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        for (int i = 0; i < 3; i++) {
            Clients.check(producer.send(Clients.message(TOPIC, "message " + i)));
        }
        setMode(producer, MessageRequestMode.POP);

        Received received = new Received();
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
        consumer.setClientRebalance(false); // asks the broker for its mode and queues
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener(received);
        consumer.start();
        List<String> bodies = received.await(3);
        consumer.shutdown();
        producer.shutdown();
        boolean popped = bodies.stream().map(received::message)
            .allMatch(message -> message.getProperty(MessageConst.PROPERTY_POP_CK) != null);
        return "3 sent, " + (popped ? "popped " : "pulled ") + bodies;
    }

    /** Does what mqadmin setConsumeMode -m POP does, for all brokers with the topic. */
    private static void setMode(DefaultMQProducer producer, MessageRequestMode mode) throws Exception {
        var client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        for (var broker : client.getAnExistTopicRouteData(TOPIC).getBrokerDatas()) {
            client.getMQClientAPIImpl().setMessageRequestMode(
                broker.selectBrokerAddr(), TOPIC, GROUP, mode, ALL_QUEUES, TIMEOUT_MS);
        }
    }
}
