package org.pocketmq.junit5;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A running name server and broker, in a child process that ends with this one. Its store is in memory. */
public final class PocketMQ implements AutoCloseable {
    private static final int UPDATE_AND_CREATE_TOPIC = 17;
    private static final int READ_CLOCK = 70010;
    private static final int ADVANCE_CLOCK = 70011;
    private static final int READ_AND_WRITE = 6;

    private final ServerProcess process;

    private PocketMQ(ServerProcess process) {
        this.process = process;
    }

    /** Starts a server with the test clock, also outside JUnit. */
    public static PocketMQ start() {
        return start(arguments(true, new String[0]));
    }

    static PocketMQ start(List<String> arguments) {
        return new PocketMQ(ServerProcess.start(arguments));
    }

    static List<String> arguments(boolean testClock, String[] settings) {
        List<String> arguments = new ArrayList<>(List.of("up", "--memory", "--port", "0"));
        if (testClock) {
            arguments.add("--test-clock");
        }
        for (String setting : settings) {
            arguments.addAll(List.of("--set", setting));
        }
        return arguments;
    }

    /** Address of the name server, {@code host:port}: for {@code setNamesrvAddr}. */
    public String namesrvAddr() {
        return process.found("namesrv");
    }

    /** Address of the broker, {@code host:port}. */
    public String brokerAddr() {
        return process.found("broker");
    }

    /** Address for gRPC clients, {@code host:port}; empty if the server has no gRPC library. */
    public String grpcEndpoint() {
        return process.found("grpc");
    }

    /** Address of the page of metrics; empty without one. */
    public String metricsUrl() {
        return process.found("metrics");
    }

    /** The last lines that the server printed. */
    public String output() {
        return process.output();
    }

    /** Creates a topic with four queues, and returns its name. */
    public String createTopic(String name) {
        return createTopic(name, MessageType.NORMAL);
    }

    /** Creates a topic with four queues, and returns its name. */
    public String createTopic(String name, MessageType type) {
        return createTopic(name, type, 4);
    }

    /** Creates a topic, or changes its type and number of queues, and returns its name. Clients find it on return. */
    public String createTopic(String name, MessageType type, int queues) {
        Map<String, String> fields = new TreeMap<>();
        fields.put("topic", name);
        fields.put("defaultTopic", "TBW102");
        fields.put("readQueueNums", Integer.toString(queues));
        fields.put("writeQueueNums", Integer.toString(queues));
        fields.put("perm", Integer.toString(READ_AND_WRITE));
        fields.put("topicFilterType", "SINGLE_TAG");
        fields.put("topicSysFlag", "0");
        fields.put("order", "false");
        fields.put("attributes", "+message.type=" + type);
        Remoting.call(brokerAddr(), UPDATE_AND_CREATE_TOPIC, fields);
        return name;
    }

    /** The current message time. */
    public Instant now() {
        return time(Remoting.call(brokerAddr(), READ_CLOCK, Map.of()));
    }

    /**
     * Advances message time, and returns the new one: messages that are due by then are in their topics.
     *
     * @throws IllegalStateException if the server runs with the machine's clock
     */
    public Instant advanceClock(Duration duration) {
        return time(Remoting.call(brokerAddr(), ADVANCE_CLOCK, Map.of("ms", Long.toString(duration.toMillis()))));
    }

    /** Stops the server; its messages are lost. */
    @Override
    public void close() {
        process.stop();
    }

    private static Instant time(String header) {
        return Instant.ofEpochMilli(Long.parseLong(Remoting.field(header, "now")));
    }
}
