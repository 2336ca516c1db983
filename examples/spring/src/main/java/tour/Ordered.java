package tour;

import java.util.List;

import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.stereotype.Component;

/** Messages with one hash key go to one queue; an ORDERLY listener gets them one after the other. */
@Component
class Ordered implements Application.Kind {
    private final RocketMQTemplate template;

    Ordered(RocketMQTemplate template) {
        this.template = template;
    }

    @Override
    public String run() throws Exception {
        for (String step : List.of("created", "paid", "shipped")) {
            template.syncSendOrderly("SpringOrdered", step, "order-7");
        }
        return "order-7 " + Listener.CONSUMED.await(3);
    }

    @Component
    @RocketMQMessageListener(
        topic = "SpringOrdered", consumerGroup = "SpringOrderedGroup", consumeMode = ConsumeMode.ORDERLY)
    static class Listener implements RocketMQListener<String> {
        static final Consumed CONSUMED = new Consumed();

        @Override
        public void onMessage(String body) {
            CONSUMED.add(body);
        }
    }
}
