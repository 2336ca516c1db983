package tour;

import java.util.LinkedHashMap;
import java.util.Map;

import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/**
 * A tour of rocketmq-spring: sends and consumes messages of several kinds, one kind after the other.
 *
 *   pocketmq topic create SpringPlain (and SpringOrdered SpringDelayed SpringTransaction SpringRequest)
 *   mvn -q package dependency:copy-dependencies
 *   java -cp 'target/*:target/dependency/*' tour.Application --rocketmq.name-server=127.0.0.1:9876
 *
 * Each class beside this one shows one kind, with its listener. A line tells what was seen.
 */
@SpringBootApplication
public class Application implements CommandLineRunner {
    interface Kind {
        /** Sends and consumes; returns the line. */
        String run() throws Exception;
    }

    private final Map<String, Kind> kinds = new LinkedHashMap<>();

    Application(Plain plain, Ordered ordered, Delayed delayed, Transaction transaction, RequestReply requestReply) {
        kinds.put("plain", plain);
        kinds.put("ordered", ordered);
        kinds.put("delayed", delayed);
        kinds.put("transaction", transaction);
        kinds.put("request-reply", requestReply);
    }

    @Override
    public void run(String... args) throws Exception {
        for (Map.Entry<String, Kind> kind : kinds.entrySet()) {
            System.out.println(kind.getKey() + ": " + kind.getValue().run());
        }
    }

    public static void main(String[] args) {
        int status = 1;
        try {
            status = SpringApplication.exit(SpringApplication.run(Application.class, args));
        } finally {
            System.exit(status); // the client's threads would keep the process after an error
        }
    }
}
