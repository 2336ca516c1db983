import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The real mqadmin, many commands in one JVM. A request line holds the arguments, each URL-encoded, between blanks; the answer is
 * what the command printed, ended by a line with NUL and the exit code. Where Java still has security managers (before 24), one
 * turns an exit into an Error, which ends the command only; elsewhere an exit ends the shell.
 */
public final class MqadminShell {
    private static final class Exit extends Error {
        private final int code;

        private Exit(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    private static final class NoExit extends SecurityManager {
        @Override
        public void checkExit(int code) {
            throw new Exit(code);
        }

        @Override
        public void checkPermission(Permission permission) {
        }
    }

    /** Removes the commands, so that the next run creates new ones: some keep a client and cannot be run twice. */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            System.setSecurityManager(new NoExit());
        } catch (UnsupportedOperationException notSupported) {
            System.err.println(notSupported);
        }
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] command = line.split(" ");
            for (int index = 0; index < command.length; index++) {
                command[index] = URLDecoder.decode(command[index], "UTF-8");
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(printed, true, "UTF-8");
            System.setOut(both);
            System.setErr(both);
            int exitCode = 0;
            try {
                forgetCommands();
                MQAdminStartup.main0(command, null);
            } catch (Exit exit) {
                exitCode = exit.code;
            }
            both.flush();
            printed.write(("\n\0" + exitCode + "\n").getBytes(StandardCharsets.UTF_8));
            answers.write(printed.toByteArray());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
