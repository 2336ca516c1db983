package pocketmq.spark.reading;

/** The broker's {@code messageDelayLevel} as a table of delays. */
final class DelayLevels {
    private DelayLevels() {}

    /** Returns the ms of each level of a text such as {@code 1s 5s 2h}. Throws IllegalArgumentException. */
    static long[] parse(String text) {
        String[] entries = text.strip().split("\\s+");
        if (entries[0].isEmpty()) {
            throw ReadException.option("messageDelayLevel is empty: give at least one level, such as 1s");
        }
        long[] delaysMs = new long[entries.length];
        for (int index = 0; index < entries.length; index++) {
            delaysMs[index] = delayMs(entries[index], index + 1);
        }
        return delaysMs;
    }

    private static long delayMs(String entry, int level) {
        long unit = switch (entry.charAt(entry.length() - 1)) {
            case 's' -> 1_000;
            case 'm' -> 60_000;
            case 'h' -> 3_600_000;
            case 'd' -> 86_400_000;
            default -> 0;
        };
        if (unit == 0) {
            throw ReadException.option(
                    "messageDelayLevel: level " + level + " is '" + entry + "': its unit must be one of s m h d");
        }
        String number = entry.substring(0, entry.length() - 1);
        if (!number.matches("[0-9]{1,10}")) {
            throw ReadException.option("messageDelayLevel: level " + level + " is '" + entry
                    + "': expected a whole number before its unit");
        }
        return Long.parseLong(number) * unit;
    }
}
