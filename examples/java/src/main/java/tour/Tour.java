package tour;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A tour of RocketMQ with the Java client: sends and consumes messages of each kind, one kind after the other.
 *
 *   mvn -q package dependency:copy-dependencies
 *   java -cp 'target/*:target/dependency/*' tour.Tour 127.0.0.1:9876
 *   java -cp 'target/*:target/dependency/*' tour.Tour 127.0.0.1:9876 recall pop
 *
 * Each class beside this one shows one kind and can be copied with Clients and Received. A line tells what was seen.
 */
public class Tour {
    interface Kind {
        /** Sends and consumes; returns the line. */
        String run(String nameServer) throws Exception;
    }

    private static final Map<String, Kind> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put("sync", Sync::run);
        KINDS.put("async", Async::run);
        KINDS.put("oneway", Oneway::run);
        KINDS.put("ordered", Ordered::run);
        KINDS.put("delay-level", DelayLevel::run);
        KINDS.put("delay-time", DelayTime::run);
        KINDS.put("recall", Recall::run);
        KINDS.put("batch", Batch::run);
        KINDS.put("tag", Tag::run);
        KINDS.put("sql92", Sql92::run);
        KINDS.put("transaction", Transaction::run);
        KINDS.put("broadcast", Broadcast::run);
        KINDS.put("request-reply", RequestReply::run);
        KINDS.put("trace", Trace::run);
        KINDS.put("pop", Pop::run);
    }

    public static void main(String[] args) {
        int status = 1;
        try {
            run(args[0], List.of(args).subList(1, args.length));
            status = 0;
        } catch (Exception failure) {
            failure.printStackTrace();
        }
        System.exit(status); // the client's threads would keep the process
    }

    private static void run(String nameServer, List<String> chosen) throws Exception {
        for (Map.Entry<String, Kind> kind : KINDS.entrySet()) {
            if (chosen.isEmpty() || chosen.contains(kind.getKey())) {
                System.out.println(kind.getKey() + ": " + kind.getValue().run(nameServer));
            }
        }
    }
}
