package tour;

import java.util.List;

import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

/** Sends by the template: of an object, which becomes the body, and of a message; the destination is topic:tag. */
@Component
class Plain implements Application.Kind {
    private final RocketMQTemplate template;

    Plain(RocketMQTemplate template) {
        this.template = template;
    }

    @Override
    public String run() throws Exception {
        template.convertAndSend("SpringPlain:red", "first");
        Listener.CONSUMED.await(1);
        template.syncSend("SpringPlain:blue", MessageBuilder.withPayload("second").setHeader("KEYS", "order-7").build());
        template.sendOneWay("SpringPlain:green", "of another tag");
        List<String> consumed = Listener.CONSUMED.await(1);
        return "3 sent, consumed by red || blue: first, " + String.join(", ", consumed);
    }

    @Component
    @RocketMQMessageListener(topic = "SpringPlain", consumerGroup = "SpringPlainGroup", selectorExpression = "red || blue")
    static class Listener implements RocketMQListener<String> {
        static final Consumed CONSUMED = new Consumed();

        @Override
        public void onMessage(String body) { // an exception: the message is delivered again later
            CONSUMED.add(body);
        }
    }
}
