package tour;

import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Synchronous sends: each returns when the broker has answered, and says where the message is stored. */
final class Sync {
    static final String TOPIC = "TourSync", GROUP = "TourSyncGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        for (int i = 0; i < 3; i++) {
            Clients.check(producer.send(Clients.message(TOPIC, "message " + i)));
        }
        producer.shutdown();
        return "3 sent, consumed " + Received.all(nameServer, GROUP, TOPIC, 3);
    }
}
