package tour;

import java.util.ArrayList;
import java.util.List;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel; // 4.x: org.apache.rocketmq.common.protocol.heartbeat

/** Broadcasting: each consumer of the group gets all messages, and keeps its offsets in ~/.rocketmq_offsets. */
final class Broadcast {
    static final String TOPIC = "TourBroadcast", GROUP = "TourBroadcastGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        for (int i = 0; i < 3; i++) {
            Clients.check(producer.send(Clients.message(TOPIC, "message " + i)));
        }
        producer.shutdown();

        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        List<Received> received = List.of(new Received(), new Received());
        for (Received one : received) {
            DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
            consumer.setInstanceName("TourBroadcast" + consumers.size()); // two of a group in one process need two names
            consumer.setMessageModel(MessageModel.BROADCASTING);
            consumer.subscribe(TOPIC, "*");
            consumer.registerMessageListener(one);
            consumer.start();
            consumers.add(consumer);
        }
        String line = "3 sent, consumed by one " + received.get(0).await(3) + ", by the other " + received.get(1).await(3);
        consumers.forEach(DefaultMQPushConsumer::shutdown);
        return line;
    }
}
