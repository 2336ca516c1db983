import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;

/** Runs examples of rocketmq-example in one process: each line of its input is a main class and its arguments. */
public final class ExampleRunner {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String name = "org.apache.rocketmq.example." + words[0];
            new Thread(() -> run(name, Arrays.copyOfRange(words, 1, words.length)), words[0]).start();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String name, String[] args) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (Throwable failure) {
            System.out.println("EXAMPLE TRACE: " + name);
            failure.printStackTrace(System.out);
            System.out.println("EXAMPLE FAILED: " + name);
        }
    }
}
