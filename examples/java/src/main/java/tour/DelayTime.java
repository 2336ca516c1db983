package tour;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A delay to any millisecond. setDelayTimeMs has the broker add the delay to the time at which it stores the message. */
final class DelayTime {
    static final String TOPIC = "TourDelayTime", GROUP = "TourDelayTimeGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        Message message = Clients.message(TOPIC, "later");
        message.setDeliverTimeMs(System.currentTimeMillis() + 700);
        Clients.check(producer.send(message));

        Received received = new Received();
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener(received);
        consumer.start();
        received.await(1);
        consumer.shutdown();
        producer.shutdown();
        long after = received.time("later") - received.message("later").getDeliverTimeMs();
        return "due in 700 ms, consumed " + (after >= 0 ? "then" : -after + " ms too early");
    }
}
