package tour;

import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** A message that is delivered if the producer's own transaction succeeds; the broker asks if it has not been told. */
final class Transaction {
    static final String TOPIC = "TourTransaction", GROUP = "TourTransactionGroup";

    static String run(String nameServer) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("TourTransactionProducer");
        producer.setNamesrvAddr(nameServer);
        producer.setTransactionListener(new TransactionListener() {
            /** Called once the message is stored, and not yet delivered: the place of the local transaction. */
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return (LocalTransactionState) argument;
            }

            /** The broker's question about a message of UNKNOW, or of a producer that has ended meanwhile. */
            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            Message message = new Message(TOPIC, state.name().getBytes(StandardCharsets.UTF_8));
            // The broker asks after a second, not after transactionTimeOut.
            message.putUserProperty(MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS, "1");
            producer.sendMessageInTransaction(message, state);
        }
        String line = "3 sent, consumed " + Received.all(nameServer, GROUP, TOPIC, 2);
        producer.shutdown();
        return line;
    }
}
