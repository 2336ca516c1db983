package tour;

import java.nio.charset.StandardCharsets;
import java.util.Map;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A call over messages: the producer waits for the message with which a consumer replies. */
final class RequestReply {
    static final String TOPIC = "TourRequest", GROUP = "TourRequestGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        // Consumers look for a new topic only every 30 s, so it exists before they start.
        producer.createTopic("TBW102", TOPIC, 4, Map.of());

        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                for (MessageExt question : messages) {
                    String[] numbers = new String(question.getBody(), StandardCharsets.UTF_8).split(" \\+ ");
                    int sum = Integer.parseInt(numbers[0]) + Integer.parseInt(numbers[1]);
                    byte[] answer = String.valueOf(sum).getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(question, answer));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            } catch (Exception failure) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
        consumer.start();

        Message reply = producer.request(Clients.message(TOPIC, "2 + 3"), 20_000);
        consumer.shutdown();
        producer.shutdown();
        return "asked 2 + 3, answered " + new String(reply.getBody(), StandardCharsets.UTF_8);
    }
}
