package tour;

import java.util.List;
import java.util.stream.Collectors;

import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

/** Messages that are delivered if the local transaction succeeds; the broker asks if it has not been told. */
@Component
class Transaction implements Application.Kind {
    private final RocketMQTemplate template;

    Transaction(RocketMQTemplate template) {
        this.template = template;
    }

    @Override
    public String run() throws Exception {
        for (RocketMQLocalTransactionState state : RocketMQLocalTransactionState.values()) {
            // The broker asks after a second, not after transactionTimeOut.
            Message<String> message = MessageBuilder.withPayload(state.name())
                .setHeader("CHECK_IMMUNITY_TIME_IN_SECONDS", "1").build();
            template.sendMessageInTransaction("SpringTransaction", message, state);
        }
        List<String> consumed = Listener.CONSUMED.await(2);
        return "3 sent, consumed " + consumed.stream().sorted().collect(Collectors.toList());
    }

    @RocketMQTransactionListener
    static class Local implements RocketMQLocalTransactionListener {
        /** Called once the message is stored, and not yet delivered: the place of the local transaction. */
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return (RocketMQLocalTransactionState) argument;
        }

        /** The broker's question about a message of UNKNOWN, or of a producer that has ended meanwhile. */
        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return RocketMQLocalTransactionState.COMMIT;
        }
    }

    @Component
    @RocketMQMessageListener(topic = "SpringTransaction", consumerGroup = "SpringTransactionGroup")
    static class Listener implements RocketMQListener<String> {
        static final Consumed CONSUMED = new Consumed();

        @Override
        public void onMessage(String body) {
            CONSUMED.add(body);
        }
    }
}
