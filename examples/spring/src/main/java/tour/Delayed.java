package tour;

import java.util.Collections;
import java.util.List;

import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.messaging.support.MessageBuilder;
import org.springframework.stereotype.Component;

/** Delays: to a time in milliseconds, and by level. The listener takes RocketMQ's own type, to see the time of the send. */
@Component
class Delayed implements Application.Kind {
    private static final int TIMEOUT_MS = 3000;

    private final RocketMQTemplate template;

    Delayed(RocketMQTemplate template) {
        this.template = template;
    }

    @Override
    public String run() throws Exception {
        template.syncSend("SpringDelayed", MessageBuilder.withPayload("level 1").build(), TIMEOUT_MS, 1);
        template.syncSendDelayTimeMills("SpringDelayed", "500 ms", 500);
        List<String> consumed = Listener.CONSUMED.await(2);
        Collections.sort(consumed);
        return "consumed " + consumed;
    }

    @Component
    @RocketMQMessageListener(topic = "SpringDelayed", consumerGroup = "SpringDelayedGroup")
    static class Listener implements RocketMQListener<MessageExt> {
        static final Consumed CONSUMED = new Consumed();

        @Override
        public void onMessage(MessageExt message) {
            String body = new String(message.getBody());
            long after = System.currentTimeMillis() - message.getBornTimestamp();
            boolean late = after >= (body.equals("500 ms") ? 500 : 1000);
            CONSUMED.add(body + (late ? " later" : ", too early"));
        }
    }
}
