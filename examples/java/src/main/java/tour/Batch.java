package tour;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Many messages of one topic in one request. A request may have 4 MiB, so a long list is split. */
final class Batch {
    static final String TOPIC = "TourBatch", GROUP = "TourBatchGroup";
    static final int LIMIT_BYTES = 1_000_000, OF_EACH_RECORD = 20;

    static String run(String nameServer) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            messages.add(Clients.message(TOPIC, i + " " + "x".repeat(100_000)));
        }
        DefaultMQProducer producer = Clients.producer(nameServer);
        List<List<Message>> lists = split(messages);
        for (List<Message> list : lists) {
            Clients.check(producer.send(list));
        }
        producer.shutdown();
        int consumed = Received.all(nameServer, GROUP, TOPIC, messages.size()).size();
        return messages.size() + " sent in " + lists.size() + " requests, " + consumed + " consumed";
    }

    /** Splits a list so that each part is below the limit, or is one message. */
    static List<List<Message>> split(List<Message> messages) {
        List<List<Message>> lists = new ArrayList<>();
        int size = LIMIT_BYTES;
        for (Message message : messages) {
            int more = size(message);
            if (size + more > LIMIT_BYTES) {
                lists.add(new ArrayList<>());
                size = 0;
            }
            lists.get(lists.size() - 1).add(message);
            size += more;
        }
        return lists;
    }

    static int size(Message message) {
        int size = message.getTopic().length() + message.getBody().length + OF_EACH_RECORD;
        for (Map.Entry<String, String> property : message.getProperties().entrySet()) {
            size += property.getKey().length() + property.getValue().length();
        }
        return size;
    }
}
