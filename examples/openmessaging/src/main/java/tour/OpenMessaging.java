package tour;

import java.nio.charset.StandardCharsets;
import java.util.SortedSet;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import io.openmessaging.BytesMessage;
import io.openmessaging.Future;
import io.openmessaging.Message;
import io.openmessaging.MessagingAccessPoint;
import io.openmessaging.OMS;
import io.openmessaging.OMSBuiltinKeys;
import io.openmessaging.consumer.PullConsumer;
import io.openmessaging.consumer.PushConsumer;
import io.openmessaging.producer.Producer;
import io.openmessaging.producer.SendResult;

/**
 * OpenMessaging 0.3 over RocketMQ: a producer, a push consumer and a pull consumer.
 *
 *   mvn -q package dependency:copy-dependencies
 *   OMS_RMQ_DIRECT_NAME_SRV=true java -cp 'target/*:target/dependency/*' tour.OpenMessaging 127.0.0.1:9876
 *
 * With that variable the address in the URL is a name server's. Prints a line for each part.
 */
public class OpenMessaging {
    static final String TOPIC = "OpenMessagingTopic";
    static final long PATIENCE_MS = 60_000;

    public static void main(String[] args) {
        int status = 1;
        try {
            run(args[0]);
            status = 0;
        } catch (Exception failure) {
            failure.printStackTrace();
        }
        System.exit(status); // the client's threads would keep the process
    }

    static void run(String nameServer) throws Exception {
        MessagingAccessPoint accessPoint = OMS.getMessagingAccessPoint("oms:rocketmq://" + nameServer + "/default:default");
        accessPoint.startup();
        System.out.println("producer: " + send(accessPoint));
        System.out.println("push consumer: " + push(accessPoint));
        System.out.println("pull consumer: " + pull(accessPoint));
        accessPoint.shutdown();
    }

    static String send(MessagingAccessPoint accessPoint) throws Exception {
        Producer producer = accessPoint.createProducer();
        producer.startup();
        SendResult sent = producer.send(message(producer, "sync"));
        Future<SendResult> future = producer.sendAsync(message(producer, "async"));
        CountDownLatch answered = new CountDownLatch(1);
        future.addListener(done -> answered.countDown());
        if (!answered.await(PATIENCE_MS, TimeUnit.MILLISECONDS) || future.getThrowable() != null) {
            throw new IllegalStateException("no answer", future.getThrowable());
        }
        producer.sendOneway(message(producer, "oneway"));
        boolean haveIds = !sent.messageId().isEmpty() && !future.get().messageId().isEmpty();
        producer.shutdown();
        return haveIds ? "3 sent" : "a message without an id";
    }

    static BytesMessage message(Producer producer, String body) {
        return producer.createBytesMessage(TOPIC, body.getBytes(StandardCharsets.UTF_8));
    }

    static String push(MessagingAccessPoint accessPoint) throws Exception {
        PushConsumer consumer = accessPoint.createPushConsumer(
            OMS.newKeyValue().put(OMSBuiltinKeys.CONSUMER_ID, "OpenMessagingPush"));
        SortedSet<String> bodies = new TreeSet<>();
        CountDownLatch missing = new CountDownLatch(3);
        consumer.attachQueue(TOPIC, (message, context) -> {
            synchronized (bodies) {
                if (bodies.add(body(message))) {
                    missing.countDown();
                }
            }
            context.ack(); // without it the message is delivered again
        });
        consumer.startup();
        missing.await(PATIENCE_MS, TimeUnit.MILLISECONDS);
        consumer.shutdown();
        return "consumed " + bodies;
    }

    static String pull(MessagingAccessPoint accessPoint) {
        PullConsumer consumer = accessPoint.createPullConsumer(
            OMS.newKeyValue().put(OMSBuiltinKeys.CONSUMER_ID, "OpenMessagingPull"));
        consumer.attachQueue(TOPIC);
        consumer.startup();
        SortedSet<String> bodies = new TreeSet<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (bodies.size() < 3 && System.currentTimeMillis() < deadline) {
            Message message = consumer.receive(); // waits up to three seconds
            if (message != null) {
                bodies.add(body(message));
                consumer.ack(message.sysHeaders().getString(Message.BuiltinKeys.MESSAGE_ID));
            }
        }
        consumer.shutdown();
        return "received " + bodies;
    }

    static String body(Message message) {
        return new String(((BytesMessage) message).getBody(byte[].class), StandardCharsets.UTF_8);
    }
}
