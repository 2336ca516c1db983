package pocketmq.spark.reading;

import java.util.Collection;
import java.util.Locale;
import org.apache.commons.text.similarity.LongestCommonSubsequence;

/** Suggests the known name that is most similar to an unknown one. */
public final class Nearest {
    private static final double SIMILAR = 0.6;

    private Nearest() {}

    /** Returns {@code did you mean X?}, or the list of all known names if none is similar. */
    public static String of(String name, Collection<String> known) {
        String best = null;
        double bestScore = SIMILAR;
        for (String one : known) {
            double score = similarity(name.toLowerCase(Locale.ROOT), one.toLowerCase(Locale.ROOT));
            if (score >= bestScore && (best == null || score > bestScore)) {
                best = one;
                bestScore = score;
            }
        }
        return best == null ? "known names are " + String.join(", ", known) : "did you mean " + best + "?";
    }

    /** Returns twice the length of the longest common subsequence in relation to both lengths. */
    private static double similarity(String one, String other) {
        return 2.0 * new LongestCommonSubsequence().apply(one, other) / Math.max(one.length() + other.length(), 1);
    }
}
