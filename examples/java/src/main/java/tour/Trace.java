package tour;

import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Clients with a trace send what they did with a message to RMQ_SYS_TRACE_TOPIC, which mqadmin queryMsgTraceById reads. */
final class Trace {
    static final String TOPIC = "TourTrace", GROUP = "TourTraceGroup", TRACES = "RMQ_SYS_TRACE_TOPIC";

    static String run(String nameServer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("TourTraceProducer", true, null); // null: the usual topic
        producer.setNamesrvAddr(nameServer);
        producer.start();
        SendResult sent = producer.send(Clients.message(TOPIC, "traced"));

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP, true, null);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Received received = new Received();
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener(received);
        consumer.start();
        received.await(1);
        consumer.shutdown(); // sends the rest of the trace
        producer.shutdown();
        return "of the message: " + events(nameServer, sent.getMsgId());
    }

    /** Reads the trace of one message: sent, before its consumption, and after it. */
    static SortedSet<String> events(String nameServer, String msgId) throws Exception {
        SortedSet<String> events = new TreeSet<>();
        Received records = new Received();
        DefaultMQPushConsumer consumer = Clients.consumer(nameServer, "TourTraceReader");
        consumer.subscribe(TRACES, "*");
        consumer.registerMessageListener(records);
        consumer.start();
        for (int count = 1; events.size() < 3; count++) {
            List<String> bodies = records.await(count);
            for (String body : bodies) {
                for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(body)) {
                    if (context.getTraceBeans().get(0).getMsgId().equals(msgId)) {
                        events.add(context.getTraceType().name());
                    }
                }
            }
        }
        consumer.shutdown();
        return events;
    }
}
