import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The real mqadmin, many commands in one JVM. A request line holds the arguments, each URL-encoded, between blanks; the answer is
 * what the command printed, ended by a line with NUL.
 */
public final class MqadminShell {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] command = line.split(" ");
            for (int index = 0; index < command.length; index++) {
                command[index] = URLDecoder.decode(command[index], "UTF-8");
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(printed, true, "UTF-8");
            System.setOut(both);
            System.setErr(both);
            MQAdminStartup.main0(command, null);
            both.flush();
            printed.write("\n\0\n".getBytes(StandardCharsets.UTF_8));
            answers.write(printed.toByteArray());
            answers.flush();
        }
        System.exit(0);
    }
}
