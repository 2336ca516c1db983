import org.pocketmq.junit5.PocketMQ;

/** Starts a server in a thread that ends, and waits to be killed. */
public class Held {
    public static void main(String[] arguments) throws Exception {
        Thread starter = new Thread(() -> System.out.println(PocketMQ.start().brokerAddr()));
        starter.start();
        starter.join();
        Thread.sleep(600_000);
    }
}
