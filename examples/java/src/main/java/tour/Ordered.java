package tour;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages of one order go to one queue, and an orderly listener gets each queue's messages one after the other. */
final class Ordered {
    static final String TOPIC = "TourOrdered", GROUP = "TourOrderedGroup";
    static final String[] STEPS = {"created", "paid", "shipped"};

    static String run(String nameServer) throws Exception {
        String run = Long.toString(System.nanoTime(), 36); // the orders of this run
        DefaultMQProducer producer = Clients.producer(nameServer);
        for (String step : STEPS) {
            for (int order = 0; order < 2; order++) {
                Clients.check(producer.send(Clients.message(TOPIC, run + " " + order + " " + step),
                    (queues, message, number) -> queues.get((int) number % queues.size()), order));
            }
        }
        producer.shutdown();

        List<List<String>> steps = List.of(new ArrayList<>(), new ArrayList<>());
        CountDownLatch missing = new CountDownLatch(2 * STEPS.length);
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, GROUP);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                String[] words = new String(message.getBody(), StandardCharsets.UTF_8).split(" ");
                if (words[0].equals(run)) {
                    steps.get(Integer.parseInt(words[1])).add(words[2]);
                    missing.countDown();
                }
            }
            // SUSPEND_CURRENT_QUEUE_A_MOMENT: the same messages come again before the queue goes on
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        missing.await(60, TimeUnit.SECONDS);
        consumer.shutdown();
        return "order 0 " + steps.get(0) + ", order 1 " + steps.get(1);
    }
}
