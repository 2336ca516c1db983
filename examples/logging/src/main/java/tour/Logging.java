package tour;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.logging.log4j.LogManager;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.slf4j.LoggerFactory;

/**
 * Logs by Logback and by Log4j 2, whose lines arrive as messages, as logback.xml and log4j2.xml say.
 *
 *   mvn -q package dependency:copy-dependencies
 *   export NAMESRV_ADDR=127.0.0.1:9876
 *   java --add-opens=java.base/java.nio=ALL-UNNAMED -cp 'target/*:target/dependency/*' tour.Logging
 *
 * The option is for Java 16 and newer, as the appenders' client is of 2021. Prints the lines that a consumer of the topic
 * gets, by the messages' tags. The appenders send without waiting for an answer: the program goes on without a broker, and
 * loses its lines.
 */
public class Logging {
    public static void main(String[] args) throws Exception {
        LoggerFactory.getLogger("shop").info("order {} paid", 7);
        LoggerFactory.getLogger("shop").debug("below the level");
        LoggerFactory.getLogger("shop.stock").warn("nothing left of {}", "tea");
        LogManager.getLogger("shop").error("payment of order {} refused", 8);
        for (Map.Entry<String, SortedSet<String>> lines : consume(3).entrySet()) {
            System.out.println(lines.getKey() + ": " + lines.getValue());
        }
        System.exit(0); // the client's threads would keep the process
    }

    static SortedMap<String, SortedSet<String>> consume(int count) throws Exception {
        SortedMap<String, SortedSet<String>> lines = new TreeMap<>();
        CountDownLatch missing = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("LogReader"); // its name server is that of NAMESRV_ADDR
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("LogTopic", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            synchronized (lines) {
                for (MessageExt message : messages) {
                    String line = new String(message.getBody(), StandardCharsets.UTF_8);
                    if (lines.computeIfAbsent(message.getTags(), tag -> new TreeSet<>()).add(line)) {
                        missing.countDown();
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean complete = missing.await(30, TimeUnit.SECONDS);
        consumer.shutdown();
        if (!complete) {
            System.err.println("timeout: only " + lines + " came");
            System.exit(1);
        }
        return lines;
    }
}
