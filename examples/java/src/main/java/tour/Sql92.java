package tour;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** A condition over the messages' properties, in SQL92. The broker needs enablePropertyFilter=true. */
final class Sql92 {
    static final String TOPIC = "TourSql92", GROUP = "TourSql92Group";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        for (String region : new String[] {"EU", "US"}) {
            for (int price = 80; price <= 120; price += 40) {
                Message message = Clients.message(TOPIC, region + " " + price);
                message.putUserProperty("region", region);
                message.putUserProperty("price", String.valueOf(price));
                Clients.check(producer.send(message));
            }
        }
        producer.shutdown();

        Received received = new Received();
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
        consumer.subscribe(TOPIC, MessageSelector.bySql("region = 'EU' AND price > 100"));
        consumer.registerMessageListener(received);
        consumer.start();
        String line = "4 sent, consumed by region = 'EU' AND price > 100: " + received.await(1);
        consumer.shutdown();
        return line;
    }
}
