package pocketmq.spark.reading;

import java.io.Serializable;

/** An integer range from {@code low} to {@code high}, both inclusive. */
public record Bounds(long low, long high) implements Serializable {
    public static final Bounds ALL = new Bounds(Long.MIN_VALUE, Long.MAX_VALUE);
    private static final Bounds NOTHING = new Bounds(Long.MAX_VALUE, Long.MIN_VALUE);

    /** Returns the range from {@code starting} (inclusive) to {@code ending} (exclusive); null means no limit. */
    static Bounds of(Long starting, Long ending) {
        return new Bounds(
                starting == null ? Long.MIN_VALUE : starting, ending == null ? Long.MAX_VALUE : ending - 1);
    }

    public boolean has(long number) {
        return number >= low && number <= high;
    }

    public boolean isAll() {
        return equals(ALL);
    }

    /** Returns this range restricted by {@code x comparison value}, null for any other comparison than of numbers. */
    public Bounds narrowed(String comparison, long value) {
        return switch (comparison) {
            case "=", "<=>" -> new Bounds(Math.max(low, value), Math.min(high, value));
            case ">=" -> new Bounds(Math.max(low, value), high);
            case "<=" -> new Bounds(low, Math.min(high, value));
            case ">" -> value == Long.MAX_VALUE ? NOTHING : new Bounds(Math.max(low, value + 1), high);
            case "<" -> value == Long.MIN_VALUE ? NOTHING : new Bounds(low, Math.min(high, value - 1));
            default -> null;
        };
    }
}
