import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * Prints the verdicts of RocketMQ's own filter. Reads lines of URL-encoded words; answers all but messages with a line:
 *
 *   message properties            a message, by its property string, for the expressions that follow
 *   expression text               one letter per message: True, False, Null, Error; a single X if it does not compile
 *   bloom errorRate groups text   the positions of its bits
 */
public final class Sql92Verdicts {
    private static final List<Map<String, String>> messages = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        // The filter's log output goes to standard error.
        PrintStream out = System.out;
        System.setOut(System.err);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            for (int index = 0; index < words.length; index++) {
                words[index] = URLDecoder.decode(words[index], StandardCharsets.UTF_8);
            }
            if (words[0].equals("message")) {
                messages.add(MessageDecoder.string2messageProperties(words[1]));
            } else if (words[0].equals("expression")) {
                out.println(verdicts(words[1]));
            } else {
                BloomFilter filter = BloomFilter.createByFn(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                out.println(filter.getM() + " " + Arrays.toString(filter.calcBitPositions(words[3])));
            }
        }
        out.flush();
    }

    private static String verdicts(String text) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable refused) {
            return "X";
        }
        StringBuilder letters = new StringBuilder();
        for (Map<String, String> properties : messages) {
            letters.append(verdict(expression, properties));
        }
        return letters.toString();
    }

    private static char verdict(Expression expression, Map<String, String> properties) {
        try {
            Object verdict = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(properties);
                }
            });
            return verdict == null ? 'N' : verdict.equals(Boolean.TRUE) ? 'T' : verdict.equals(Boolean.FALSE) ? 'F' : '?';
        } catch (Throwable error) {
            return 'E';
        }
    }
}
