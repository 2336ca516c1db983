package tour;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** What a listener has consumed. */
final class Consumed {
    private final BlockingQueue<String> bodies = new LinkedBlockingQueue<>();

    void add(String body) {
        bodies.add(body);
    }

    /** Waits for so many messages and returns their bodies, in the order of their consumption. */
    List<String> await(int count) throws InterruptedException {
        List<String> taken = new ArrayList<>();
        while (taken.size() < count) {
            String body = bodies.poll(60, TimeUnit.SECONDS);
            if (body == null) {
                throw new IllegalStateException("consumed " + taken + " instead of " + count + " messages");
            }
            taken.add(body);
        }
        return taken;
    }
}
