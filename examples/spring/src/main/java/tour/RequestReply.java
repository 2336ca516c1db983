package tour;

import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.stereotype.Component;

/** A call over messages: sendAndReceive waits for what the reply listener returns. */
@Component
class RequestReply implements Application.Kind {
    private final RocketMQTemplate template;

    RequestReply(RocketMQTemplate template) {
        this.template = template;
    }

    @Override
    public String run() {
        String answer = template.sendAndReceive("SpringRequest", "2 + 3", String.class, 20_000);
        return "asked 2 + 3, answered " + answer;
    }

    @Component
    @RocketMQMessageListener(topic = "SpringRequest", consumerGroup = "SpringRequestGroup")
    static class Listener implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String question) {
            String[] numbers = question.split(" \\+ ");
            return String.valueOf(Integer.parseInt(numbers[0]) + Integer.parseInt(numbers[1]));
        }
    }
}
