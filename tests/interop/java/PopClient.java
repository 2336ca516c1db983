import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.mqclient.DoNothingClientRemotingProcessor;
import org.apache.rocketmq.client.impl.mqclient.MQClientAPIExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Pops through the API that 5.x's proxies use: the client's own consumers pop neither in order nor one message at a time. */
public final class PopClient implements Driver.Popping {
    private static final int TIMEOUT_MS = 10_000;
    private static final int FROM_FIRST = 0;
    private final MQClientAPIExt client;

    /** `signing` signs the requests; null if they are not signed. */
    public PopClient(RPCHook signing) {
        client = new MQClientAPIExt(
            new ClientConfig(), new NettyClientConfig(), new DoNothingClientRemotingProcessor(null), signing);
        client.start();
    }

    @Override
    public List<MessageExt> pop(String address, String broker, Map<String, String> fields) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(fields.get("group"));
        header.setTopic(fields.get("topic"));
        boolean order = !fields.get("attemptId").isEmpty();
        header.setQueueId(order ? 0 : -1);
        header.setMaxMsgNums(Integer.parseInt(fields.get("count")));
        header.setInvisibleTime(Long.parseLong(fields.get("invisibleMs")));
        header.setPollTime(Long.parseLong(fields.get("pollMs")));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(FROM_FIRST);
        header.setExpType("TAG");
        header.setExp("*");
        if (order) {
            header.setOrder(true);
            header.setAttemptId(fields.get("attemptId"));
        }
        long timeoutMs = header.getPollTime() + TIMEOUT_MS;
        PopResult result = client.popMessageAsync(address, broker, header, timeoutMs).get(timeoutMs, TimeUnit.MILLISECONDS);
        return result.getPopStatus() == PopStatus.FOUND ? result.getMsgFoundList() : List.of();
    }

    @Override
    public String acknowledge(String address, Map<String, String> fields) throws Exception {
        String[] handle = ExtraInfoUtil.split(fields.get("handle"));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(fields.get("group"));
        header.setTopic(fields.get("topic"));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(fields.get("handle"));
        return client.ackMessageAsync(address, header, TIMEOUT_MS).get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus().name();
    }

    @Override
    public String changeInvisible(String address, String broker, Map<String, String> fields) throws Exception {
        String[] handle = ExtraInfoUtil.split(fields.get("handle"));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(fields.get("group"));
        header.setTopic(fields.get("topic"));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(fields.get("handle"));
        header.setInvisibleTime(Long.parseLong(fields.get("invisibleMs")));
        return client.changeInvisibleTimeAsync(address, broker, header, TIMEOUT_MS)
            .get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getStatus().name();
    }
}
