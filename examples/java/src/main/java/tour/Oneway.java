package tour;

import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Sends without an answer: for messages of which some may be lost. */
final class Oneway {
    static final String TOPIC = "TourOneway", GROUP = "TourOnewayGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        Clients.check(producer.send(Clients.message(TOPIC, "the first creates the topic")));
        for (int i = 0; i < 3; i++) {
            producer.sendOneway(Clients.message(TOPIC, "message " + i));
        }
        String consumed = "3 sent without an answer, consumed " + Received.all(nameServer, GROUP, TOPIC, 4).subList(0, 3);
        producer.shutdown();
        return consumed;
    }
}
