package tour;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A message has one tag, a subscription several: the broker sends the group only messages of these tags. */
final class Tag {
    static final String TOPIC = "TourTag", GROUP = "TourTagGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        for (String tag : new String[] {"red", "green", "blue"}) {
            Message message = Clients.message(TOPIC, "a " + tag + " one");
            message.setTags(tag);
            Clients.check(producer.send(message));
        }
        producer.shutdown();

        Received received = new Received();
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
        consumer.subscribe(TOPIC, "red || blue");
        consumer.registerMessageListener(received);
        consumer.start();
        String line = "3 sent, consumed by red || blue: " + received.await(2);
        consumer.shutdown();
        return line;
    }
}
