package tour;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;

/** Asynchronous sends: the call returns at once, and a callback gets the answer. */
final class Async {
    static final String TOPIC = "TourAsync", GROUP = "TourAsyncGroup";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = Clients.producer(nameServer);
        CountDownLatch answers = new CountDownLatch(3);
        for (int i = 0; i < 3; i++) {
            producer.send(Clients.message(TOPIC, "message " + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failure.printStackTrace(); // the message may have been stored, or not: send it again
                }
            });
        }
        if (!answers.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answers.getCount() + " sends without an answer");
        }
        producer.shutdown();
        return "3 sent and answered, consumed " + Received.all(nameServer, GROUP, TOPIC, 3);
    }
}
