package tour;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A delay by level: 18 levels, 1s 5s 10s 30s 1m 2m ... 10m 20m 30m 1h 2h. All versions of the client have them. */
final class DelayLevel {
    static final String TOPIC = "TourDelayLevel", GROUP = "TourDelayLevelGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        Message message = Clients.message(TOPIC, "later");
        message.setDelayTimeLevel(1);
        Clients.check(producer.send(message));

        Received received = new Received();
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener(received);
        consumer.start();
        received.await(1);
        consumer.shutdown();
        producer.shutdown();
        long after = received.time("later") - received.message("later").getBornTimestamp();
        return "level 1, consumed " + (after >= 1000 ? "after a second" : after + " ms after the send: too early");
    }
}
