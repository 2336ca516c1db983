import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.zip.CRC32;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * The Java client behind a line protocol: URL-encoded requests on stdin, JSON lines on stdout. One source for 4.9.4 and 5.5.0.
 *
 * <pre>
 * producer  name [group namespace compressOver compressType=ZLIB|LZ4|ZSTD (5.x) transactional accessKey secretKey
 *           traceTopic]
 * send      producer topic body... [kind=sync|async|oneway|batch|transaction queueId tags... keys... delayLevel size
 *           property.NAME delayTimeSec delayTimeMs deliverTimeMs priority (5.x)]
 *           tags and keys: one for all, or one for each body; size: the body's text is repeated up to that many bytes
 *           transaction: the properties local and checked say how it ends, COMMIT, ROLLBACK or UNKNOWN; local may be HANG.
 *           A hanging transaction and each check by the broker are shown as events with the producer's name
 * recall    producer topic handle (5.3 and later)
 * request   producer topic body timeoutMs      sends, and waits for the reply
 * reply     producer body property.NAME...      replies to the request that had those properties
 * pop       address group topic count invisibleMs pollMs attemptId [broker accessKey secretKey]      messages of queue 0, in order;
 *           with an empty attemptId of all queues, in any order (5.x)
 * acknowledge, changeInvisible     address group topic handle [invisibleMs accessKey secretKey]      of a message from pop
 * push      name group topic [expression type=TAG|SQL92 model=CLUSTERING|BROADCASTING orderly from=first|last|timestamp
 *           timestampMs namespace strategy=AVERAGELY|CIRCLE|CONFIG|HASH|ROOM|NEARBY queueId... (CONFIG) room (ROOM; for
 *           NEARBY the name is ROOM.ANYTHING)
 *           maxReconsume fail... (bodies whose consumption fails, failTimes times or always) delayLevel (of a retry)
 *           pop (invisible time in ms; 5.x, the broker shares out the queues) hang (the listener never returns)
 *           lockIntervalMs (Go; Java takes it from a system property)
 *           accessKey secretKey traceTopic]
 * pull      topic queueId queueOffset count broker [group expression block]
 * lite      name group topic [expression type]
 * poll      name count timeoutMs      returns messages of a subscribed pull consumer, and commits
 * view      producer topic msgId
 * query     producer topic key
 * shutdown  name
 * </pre>
 */
public final class Driver {
    private final PrintStream out;
    private final String namesrv;
    private final String broker;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, DefaultMQPullConsumer> pullConsumers = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> liteConsumers = new ConcurrentHashMap<>();
    private final Map<String, Runnable> running = new ConcurrentHashMap<>();
    private final Map<String, Popping> popping = new ConcurrentHashMap<>();

    private Driver(PrintStream out, String namesrv, String broker) {
        this.out = out;
        this.namesrv = namesrv;
        this.broker = broker;
    }

    /** Requests to pop messages and to acknowledge or delay popped ones, which 4.9.4 lacks. */
    interface Popping {
        List<MessageExt> pop(String address, String broker, Map<String, String> fields) throws Exception;

        String acknowledge(String address, Map<String, String> fields) throws Exception;

        String changeInvisible(String address, String broker, Map<String, String> fields) throws Exception;
    }

    /** One request: its fields, each with one or more values. */
    private static final class Request {
        final Map<String, List<String>> fields = new LinkedHashMap<>();

        Request(String line) throws Exception {
            for (String pair : line.split("&")) {
                int equals = pair.indexOf('=');
                String name = URLDecoder.decode(pair.substring(0, equals), "UTF-8");
                fields.computeIfAbsent(name, key -> new ArrayList<>()).add(URLDecoder.decode(pair.substring(equals + 1), "UTF-8"));
            }
        }

        List<String> all(String name) {
            return fields.getOrDefault(name, List.of());
        }

        String text(String name, String otherwise) {
            return fields.containsKey(name) ? fields.get(name).get(0) : otherwise;
        }

        String text(String name) {
            if (!fields.containsKey(name)) {
                throw new IllegalArgumentException("field " + name + " is missing");
            }
            return fields.get(name).get(0);
        }

        Map<String, String> texts() {
            Map<String, String> texts = new LinkedHashMap<>();
            fields.forEach((name, values) -> texts.put(name, values.get(0)));
            return texts;
        }

        int number(String name, int otherwise) {
            return Integer.parseInt(text(name, "" + otherwise));
        }

        boolean flag(String name) {
            return text(name, "").equalsIgnoreCase("true");
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        Driver driver = new Driver(out, arguments[0], arguments[1]);
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Request request = new Request(line);
            pool.execute(() -> driver.answer(request));
        }
        System.exit(0); // without a stop of the clients: a test that needs one requests shutdown first
    }

    private void answer(Request request) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", Long.parseLong(request.text("id")));
        try {
            answer.put("result", perform(request));
        } catch (Throwable error) {
            error.printStackTrace();
            Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
            String because = cause.getCause() == null ? "" : ", because of " + cause.getCause().getMessage();
            answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage() + because);
        }
        print(answer);
    }

    private Object perform(Request request) throws Exception {
        switch (request.text("op")) {
            case "producer": return startProducer(request);
            case "send": return send(request);
            case "recall":
                // By reflection: 4.9.4 has neither this method nor the setters of delay times.
                return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                    .invoke(producer(request), request.text("topic"), request.text("handle"));
            case "request": return ask(request);
            case "reply": return reply(request);
            case "pop": return describe(popping(request).pop(request.text("address"), request.text("broker", broker), request.texts()));
            case "acknowledge": return popping(request).acknowledge(request.text("address"), request.texts());
            case "changeInvisible": return popping(request).changeInvisible(request.text("address"), broker, request.texts());
            case "push": return startPush(request);
            case "pull": return pull(request);
            case "lite": return startLite(request);
            case "poll": return poll(request);
            case "view": return describe(producer(request).viewMessage(request.text("topic"), request.text("msgId")));
            case "query":
                return describe(producer(request).queryMessage(
                    request.text("topic"), request.text("key"), 64, 0, System.currentTimeMillis() + 60_000).getMessageList());
            case "shutdown":
                running.remove(request.text("name")).run();
                return null;
            default: throw new IllegalArgumentException("no such operation: " + request.text("op"));
        }
    }

    private <C extends ClientConfig> C configured(C client, Request request, String name) {
        client.setNamesrvAddr(namesrv);
        client.setMqClientApiTimeout(30_000); // for a machine with much load; the default is 3 s
        client.setInstanceName(name + "@" + ProcessHandle.current().pid());
        client.setPollNameServerInterval(Integer.getInteger("driver.pollNameServerIntervalMs", 1000));
        client.setHeartbeatBrokerInterval(2000);
        client.setPersistConsumerOffsetInterval(500);
        if (request.fields.containsKey("namespace")) {
            client.setNamespace(request.text("namespace"));
        }
        return client;
    }

    /** Returns the hook that signs requests; null if they are not signed. */
    private static RPCHook signing(Request request) {
        if (!request.fields.containsKey("accessKey")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(request.text("accessKey"), request.text("secretKey")));
    }

    private Object startProducer(Request request) throws Exception {
        String name = request.text("name");
        String group = request.text("group", name + "-group");
        String traceTopic = request.text("traceTopic", null);
        // Each producer reads this property once.
        System.setProperty("rocketmq.message.compressType", request.text("compressType", "ZLIB"));
        DefaultMQProducer producer = request.flag("transactional") ? transactional(request, name, group)
            : new DefaultMQProducer(group, signing(request), traceTopic != null, traceTopic);
        configured(producer, request, name);
        producer.setSendMsgTimeout(30_000);
        producer.setCompressMsgBodyOverHowmuch(request.number("compressOver", 4096));
        producer.start();
        producers.put(name, producer);
        running.put(name, producer::shutdown);
        return null;
    }

    private DefaultMQProducer transactional(Request request, String name, String group) {
        TransactionMQProducer producer = new TransactionMQProducer(group, signing(request));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                if (message.getProperty("local").equals("HANG")) {
                    MessageExt told = new MessageExt();
                    told.setTopic(message.getTopic());
                    told.setBody(message.getBody());
                    tell(name, List.of(told), new ConcurrentHashMap<>());
                    hang();
                }
                return state(message.getProperty("local"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                tell(name, List.of(message), new ConcurrentHashMap<>());
                return state(message.getProperty("checked"));
            }

            private void hang() {
                try {
                    new CountDownLatch(1).await();
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            }

            private LocalTransactionState state(String ending) {
                return LocalTransactionState.valueOf(ending.equals("UNKNOWN") ? "UNKNOW" : ending + "_MESSAGE");
            }
        });
        return producer;
    }

    private DefaultMQProducer producer(Request request) {
        return producers.get(request.text("producer"));
    }

    private static String forOne(List<String> values, int index) {
        return values.isEmpty() ? "" : values.get(Math.min(index, values.size() - 1));
    }

    private static Message message(Request request, int index, String body) throws Exception {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        int size = request.number("size", -1);
        if (size >= 0) {
            byte[] repeated = new byte[size];
            for (int at = 0; at < size; at++) {
                repeated[at] = bytes[at % bytes.length];
            }
            bytes = repeated;
        }
        Message message = new Message(
            request.text("topic"), forOne(request.all("tags"), index), forOne(request.all("keys"), index), bytes);
        if (request.fields.containsKey("delayLevel")) {
            message.setDelayTimeLevel(request.number("delayLevel", 0));
        }
        for (String time : List.of("delayTimeSec", "delayTimeMs", "deliverTimeMs")) {
            if (request.fields.containsKey(time)) {
                String setter = "set" + Character.toUpperCase(time.charAt(0)) + time.substring(1);
                Message.class.getMethod(setter, long.class).invoke(message, Long.parseLong(request.text(time)));
            }
        }
        if (request.fields.containsKey("priority")) {
            set(message, "setPriority", int.class, Integer.parseInt(forOne(request.all("priority"), index)));
        }
        request.fields.forEach((name, values) -> {
            if (name.startsWith("property.")) {
                message.putUserProperty(name.substring("property.".length()), values.get(0));
            }
        });
        return message;
    }

    private Object send(Request request) throws Exception {
        DefaultMQProducer producer = producer(request);
        List<String> bodies = request.all("body");
        List<Message> messages = new ArrayList<>();
        for (int index = 0; index < bodies.size(); index++) {
            messages.add(message(request, index, bodies.get(index)));
        }
        boolean chosen = request.fields.containsKey("queueId");
        int queueId = request.number("queueId", 0);
        MessageQueueSelector selector = (queues, message, argument) ->
            queues.stream().filter(queue -> queue.getQueueId() == (Integer) argument).findFirst().get();
        List<Object> results = new ArrayList<>();
        switch (request.text("kind", "sync")) {
            case "sync":
                for (int index = 0; index < messages.size(); index++) {
                    long sentAt = System.currentTimeMillis();
                    Message message = messages.get(index);
                    SendResult result = chosen ? producer.send(message, selector, queueId) : producer.send(message);
                    results.add(describe(bodies.get(index), sentAt, result));
                }
                return results;
            case "transaction":
                for (int index = 0; index < messages.size(); index++) {
                    long sentAt = System.currentTimeMillis();
                    SendResult result = producer.sendMessageInTransaction(messages.get(index), null);
                    results.add(describe(bodies.get(index), sentAt, result));
                }
                return results;
            case "async":
                return sendAsync(producer, messages, bodies);
            case "oneway":
                for (int index = 0; index < messages.size(); index++) {
                    long sentAt = System.currentTimeMillis();
                    if (chosen) {
                        producer.sendOneway(messages.get(index), selector, queueId);
                    } else {
                        producer.sendOneway(messages.get(index));
                    }
                    results.add(describe(bodies.get(index), sentAt, null));
                }
                return results;
            case "batch":
                long sentAt = System.currentTimeMillis();
                SendResult result = chosen
                    ? producer.send(messages, new MessageQueue(request.text("topic"), broker, queueId)) : producer.send(messages);
                results.add(describe("", sentAt, result));
                return results;
            default:
                throw new IllegalArgumentException("no such kind: " + request.text("kind"));
        }
    }

    private static Object sendAsync(DefaultMQProducer producer, List<Message> messages, List<String> bodies) throws Exception {
        CountDownLatch open = new CountDownLatch(messages.size());
        Object[] results = new Object[messages.size()];
        Throwable[] failed = new Throwable[1];
        for (int at = 0; at < messages.size(); at++) {
            int index = at;
            long sentAt = System.currentTimeMillis();
            producer.send(messages.get(index), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results[index] = describe(bodies.get(index), sentAt, result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failed[0] = error;
                    open.countDown();
                }
            });
        }
        if (!open.await(20, TimeUnit.SECONDS) || failed[0] != null) {
            throw new IllegalStateException(open.getCount() + " callbacks missing, error " + failed[0], failed[0]);
        }
        return List.of(results);
    }

    private Object ask(Request request) throws Exception {
        Message message = message(request, 0, request.text("body"));
        // Without a selector 4.9.4 returns the request as its own reply as soon as it is sent.
        MessageQueueSelector first = (queues, sent, argument) -> queues.get(0);
        return describe((MessageExt) producer(request).request(message, first, null, request.number("timeoutMs", 10_000)));
    }

    private Object reply(Request request) throws Exception {
        MessageExt asked = new MessageExt();
        request.fields.forEach((name, values) -> {
            if (name.startsWith("property.")) {
                MessageAccessor.putProperty(asked, name.substring("property.".length()), values.get(0));
            }
        });
        Message message = MessageUtil.createReplyMessage(asked, request.text("body").getBytes(StandardCharsets.UTF_8));
        long sentAt = System.currentTimeMillis();
        return describe(request.text("body"), sentAt, producer(request).send(message));
    }

    private synchronized Popping popping(Request request) throws Exception {
        String who = request.text("accessKey", "") + ":" + request.text("secretKey", "");
        if (!popping.containsKey(who)) {
            Class<?> client = Class.forName("PopClient");
            popping.put(who, (Popping) client.getConstructor(RPCHook.class).newInstance(signing(request)));
        }
        return popping.get(who);
    }

    private AllocateMessageQueueStrategy strategy(Request request) {
        switch (request.text("strategy", "AVERAGELY")) {
            case "AVERAGELY": return new AllocateMessageQueueAveragely();
            case "CIRCLE": return new AllocateMessageQueueAveragelyByCircle();
            case "HASH": return new AllocateMessageQueueConsistentHash();
            case "CONFIG": {
                List<MessageQueue> queues = new ArrayList<>();
                for (String id : request.all("queueId")) {
                    queues.add(new MessageQueue(request.text("topic"), broker, Integer.parseInt(id)));
                }
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(queues);
                return byConfig;
            }
            case "ROOM": {
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(Set.of(request.text("room")));
                return byRoom;
            }
            case "NEARBY": return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(),
                new AllocateMachineRoomNearby.MachineRoomResolver() {
                    @Override
                    public String brokerDeployIn(MessageQueue queue) {
                        return queue.getBrokerName().split("@")[0];
                    }

                    @Override
                    public String consumerDeployIn(String clientId) {
                        return clientId.split("@")[1].split("\\.")[0]; // a client id is ADDRESS@NAME
                    }
                });
            default: throw new IllegalArgumentException("no such strategy: " + request.text("strategy"));
        }
    }

    private static void setFromWhere(DefaultMQPushConsumer consumer, Request request) {
        consumer.setConsumeFromWhere(
            ConsumeFromWhere.valueOf("CONSUME_FROM_" + Map.of("first", "FIRST_OFFSET", "last", "LAST_OFFSET",
                "timestamp", "TIMESTAMP").get(request.text("from", "first"))));
        if (request.fields.containsKey("timestampMs")) {
            Instant instant = Instant.ofEpochMilli(Long.parseLong(request.text("timestampMs")));
            consumer.setConsumeTimestamp(
                DateTimeFormatter.ofPattern("yyyyMMddHHmmss").withZone(ZoneId.systemDefault()).format(instant));
        }
    }

    private static MessageSelector selector(Request request) {
        String expression = request.text("expression", "*");
        return request.text("type", "TAG").equals("SQL92") ? MessageSelector.bySql(expression) : MessageSelector.byTag(expression);
    }

    private Object startPush(Request request) throws Exception {
        String name = request.text("name");
        String traceTopic = request.text("traceTopic", null);
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(request.text("group"), signing(request),
            strategy(request), traceTopic != null, traceTopic), request, name);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        setFromWhere(consumer, request);
        // The enum is in another package in 5.x: obtained through the getter, it needs no import.
        consumer.setMessageModel(
            Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), request.text("model", "CLUSTERING")));
        consumer.setMaxReconsumeTimes(request.number("maxReconsume", -1));
        consumer.subscribe(request.text("topic"), selector(request));
        if (request.number("pop", 0) > 0) {
            set(consumer, "setPopInvisibleTime", long.class, (long) request.number("pop", 0));
            set(consumer, "setPopThresholdForQueue", int.class, 10_000);
            set(consumer, "setClientRebalance", boolean.class, false);
        }
        boolean hangs = request.flag("hang");
        Map<String, Integer> failing = new ConcurrentHashMap<>();
        request.all("fail").forEach(body -> failing.put(body, request.number("failTimes", Integer.MAX_VALUE)));
        int delayLevel = request.number("delayLevel", 0);
        if (request.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                boolean failed = tell(name, messages, failing);
                return failed ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(delayLevel);
                boolean failed = tell(name, messages, failing);
                while (hangs) {
                    LockSupport.park();
                }
                return failed ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        running.put(name, consumer::shutdown);
        return null;
    }

    /** Calls a setter that only one of the versions has. */
    private static void set(Object target, String setter, Class<?> type, Object value) throws Exception {
        target.getClass().getMethod(setter, type).invoke(target, value);
    }

    /** Prints the received messages; returns whether one of them is to fail. */
    private boolean tell(String name, List<MessageExt> messages, Map<String, Integer> failing) {
        boolean failed = false;
        for (MessageExt message : messages) {
            Map<String, Object> event = new LinkedHashMap<>();
            event.put("event", name);
            event.put("message", describe(message));
            print(event);
            Integer left = failing.computeIfPresent(new String(message.getBody(), StandardCharsets.UTF_8), (body, times) -> times - 1);
            failed |= left != null && left >= 0;
        }
        return failed;
    }

    private Object pull(Request request) throws Exception {
        String group = request.text("group", "pull-group");
        DefaultMQPullConsumer consumer;
        synchronized (pullConsumers) {
            consumer = pullConsumers.get(group);
            if (consumer == null) {
                consumer = configured(new DefaultMQPullConsumer(group), request, group);
                consumer.start();
                pullConsumers.put(group, consumer);
                running.put(group, consumer::shutdown);
            }
        }
        consumer.fetchSubscribeMessageQueues(request.text("topic"));
        MessageQueue queue = new MessageQueue(request.text("topic"), broker, request.number("queueId", 0));
        long queueOffset = Long.parseLong(request.text("queueOffset"));
        String expression = request.text("expression", "*");
        PullResult result = request.flag("block")
            ? consumer.pullBlockIfNotFound(queue, expression, queueOffset, request.number("count", 32))
            : consumer.pull(queue, expression, queueOffset, request.number("count", 32));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("status", result.getPullStatus().toString());
        answer.put("min", result.getMinOffset());
        answer.put("max", result.getMaxOffset());
        answer.put("next", result.getNextBeginOffset());
        answer.put("messages", describe(result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList()));
        return answer;
    }

    private Object startLite(Request request) throws Exception {
        String name = request.text("name");
        DefaultLitePullConsumer consumer = configured(new DefaultLitePullConsumer(request.text("group")), request, name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.text("topic"), selector(request));
        consumer.start();
        liteConsumers.put(name, consumer);
        running.put(name, consumer::shutdown);
        return null;
    }

    @SuppressWarnings("deprecation")
    private Object poll(Request request) {
        DefaultLitePullConsumer consumer = liteConsumers.get(request.text("name"));
        List<Object> messages = new ArrayList<>();
        long end = System.currentTimeMillis() + request.number("timeoutMs", 10_000);
        while (messages.size() < request.number("count", 1) && System.currentTimeMillis() < end) {
            messages.addAll(describe(consumer.poll(200)));
        }
        consumer.commitSync();
        return messages;
    }

    private static Map<String, Object> describe(String body, long sentAt, SendResult result) {
        Map<String, Object> sent = new LinkedHashMap<>();
        sent.put("body", body);
        sent.put("status", result == null ? "ONEWAY" : result.getSendStatus().toString());
        sent.put("msg_id", result == null ? "" : result.getMsgId());
        sent.put("offset_msg_id", result == null ? "" : result.getOffsetMsgId());
        sent.put("queue_id", result == null ? -1 : result.getMessageQueue().getQueueId());
        sent.put("queue_offset", result == null ? -1 : result.getQueueOffset());
        sent.put("sent_at_ms", sentAt);
        sent.put("acked_at", System.nanoTime() / 1e6);
        sent.put("recall_handle", recallHandle(result));
        return sent;
    }

    private static Object recallHandle(SendResult result) {
        try {
            return result == null ? null : SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException olderThan53) {
            return null;
        }
    }

    private static List<Object> describe(Collection<MessageExt> messages) {
        List<Object> described = new ArrayList<>();
        for (MessageExt message : messages) {
            described.add(describe(message));
        }
        return described;
    }

    private static Map<String, Object> describe(MessageExt message) {
        double arrivedAt = System.nanoTime() / 1e6;
        long arrivedAtMs = System.currentTimeMillis();
        byte[] body = message.getBody();
        CRC32 crc = new CRC32();
        crc.update(body);
        Map<String, Object> received = new LinkedHashMap<>();
        received.put("topic", message.getTopic());
        received.put("body", body.length <= 256 ? new String(body, StandardCharsets.UTF_8) : null);
        received.put("body_size", body.length);
        received.put("body_crc", crc.getValue());
        received.put("tags", message.getTags() == null ? "" : message.getTags());
        received.put("keys", message.getKeys() == null ? "" : message.getKeys());
        received.put("msg_id", message.getMsgId());
        received.put("offset_msg_id", message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : "");
        received.put("queue_id", message.getQueueId());
        received.put("queue_offset", message.getQueueOffset());
        received.put("reconsume_times", message.getReconsumeTimes());
        received.put("born_timestamp_ms", message.getBornTimestamp());
        received.put("store_timestamp_ms", message.getStoreTimestamp());
        received.put("arrived_at_ms", arrivedAtMs);
        received.put("arrived_at", arrivedAt);
        received.put("properties", message.getProperties());
        return received;
    }

    private void print(Object item) {
        StringBuilder text = new StringBuilder();
        json(text, item);
        text.append('\n');
        synchronized (out) {
            out.print(text);
            out.flush();
        }
    }

    private static void json(StringBuilder text, Object item) {
        if (item == null || item instanceof Number || item instanceof Boolean) {
            text.append(item);
        } else if (item instanceof Map) {
            String before = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) item).entrySet()) {
                text.append(before);
                json(text, entry.getKey());
                text.append(':');
                json(text, entry.getValue());
                before = ",";
            }
            text.append(before.equals("{") ? "{}" : "}");
        } else if (item instanceof Collection) {
            String before = "[";
            for (Object element : (Collection<?>) item) {
                text.append(before);
                json(text, element);
                before = ",";
            }
            text.append(before.equals("[") ? "[]" : "]");
        } else {
            text.append('"');
            for (char c : item.toString().toCharArray()) {
                if (c < ' ' || c == '"' || c == '\\') {
                    text.append(String.format("\\u%04x", (int) c));
                } else {
                    text.append(c);
                }
            }
            text.append('"');
        }
    }
}
