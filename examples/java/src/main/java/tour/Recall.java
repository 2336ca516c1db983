package tour;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** A message with a delivery time can be recalled until then, by the handle in the answer to its send. */
final class Recall {
    static final String TOPIC = "TourRecall", GROUP = "TourRecallGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        SendResult recalled = send(producer, "recalled", 2000);
        send(producer, "kept", 2200);
        String id = producer.recallMessage(TOPIC, recalled.getRecallHandle());
        producer.shutdown();
        if (!id.equals(recalled.getMsgId())) {
            throw new IllegalStateException("recalled " + id + " instead of " + recalled.getMsgId());
        }
        return "2 sent, 1 recalled, consumed " + Received.all(nameServer, GROUP, TOPIC, 1);
    }

    private static SendResult send(DefaultMQProducer producer, String body, long delayMs) throws Exception {
        Message message = Clients.message(TOPIC, body);
        message.setDelayTimeMs(delayMs);
        SendResult result = producer.send(message);
        Clients.check(result);
        return result;
    }
}
