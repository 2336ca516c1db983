package pocketmq.spark.reading;

import java.util.Collection;
import java.util.Locale;

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
        int[] row = new int[other.length() + 1];
        for (int first = 0; first < one.length(); first++) {
            int diagonal = 0;
            for (int second = 0; second < other.length(); second++) {
                int above = row[second + 1];
                boolean isSame = one.charAt(first) == other.charAt(second);
                row[second + 1] = isSame ? diagonal + 1 : Math.max(above, row[second]);
                diagonal = above;
            }
        }
        return 2.0 * row[other.length()] / Math.max(one.length() + other.length(), 1);
    }
}
