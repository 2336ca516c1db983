package pocketmq.spark.reading;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.DateTimeException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.time.temporal.TemporalAccessor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.ToDoubleFunction;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.commons.text.similarity.LongestCommonSubsequence;
import pocketmq.spark.files.LogFiles;
import pocketmq.spark.files.StoreFiles;

/** Parsers for option values, by type; each throws IllegalArgumentException naming option, allowed values and value. */
public final class OptionParser {
    private static final double SIMILAR = 0.6;
    private static final Pattern SIZE = Pattern.compile("(\\d{1,18})\\s*([kmg]?)(?:i?b)?", Pattern.CASE_INSENSITIVE);
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern(
            "[yyyy-MM-dd][yyyyMMdd]"
                    + "[['T'][' '][HH:mm[:ss[.SSSSSSSSS][.SSSSSS][.SSSSS][.SSSS][.SSS][.SS][.S]]][HHmm[ss]]]"
                    + "[XXX][XX][X]",
            Locale.ROOT);

    private final Map<String, String> given = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);

    public OptionParser(Map<String, String> given) {
        given.forEach((name, value) -> this.given.put(name, value.strip()));
    }

    /** Refuses the first name that is in none of the lists, with the nearest known one. */
    void refuseUnknown(List<String> names, List<String> more) {
        Set<String> known = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
        known.addAll(names);
        known.addAll(more);
        for (String name : given.keySet()) {
            if (!known.contains(name)) {
                throw ReadException.option("unknown option " + name + ": " + nearest(name, names));
            }
        }
    }

    /** Returns the value of an option, {@code otherwise} if it is not given or empty. */
    public String text(String name, String otherwise) {
        String value = given.get(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }

    List<String> paths() {
        List<String> named = new ArrayList<>();
        if (!given.getOrDefault("path", "").isEmpty()) {
            named.add(given.get("path"));
        }
        if (given.containsKey("paths")) {
            try {
                named.addAll(Arrays.asList(new ObjectMapper().readValue(given.get("paths"), String[].class)));
            } catch (JsonProcessingException error) {
                throw refused("paths", "a JSON array of strings");
            }
        }
        if (named.isEmpty() || named.contains("") || named.contains(null)) {
            throw ReadException.option("no store given: use load(\"/path/of/the/store\"), or a list of paths");
        }
        List<String> paths = named.stream().flatMap(text -> LogFiles.paths(text).stream()).toList();
        if (paths.contains("")) {
            throw ReadException.option(
                    "option path is '" + String.join(", ", named) + "': it must be a comma-separated list of paths");
        }
        return paths;
    }

    /** Returns names by the paths of stores. */
    Map<String, String> brokerNames(String name) {
        Map<String, String> names = new TreeMap<>();
        try {
            Map<String, Object> object = new ObjectMapper().readValue(text(name, "{}"), new TypeReference<>() {});
            if (object != null && object.values().stream().allMatch(one -> one instanceof String own && !own.isEmpty())) {
                object.forEach((store, own) ->
                        names.put(StoreFiles.localPath(store).replaceFirst("/+$", ""), own.toString()));
                return names;
            }
        } catch (JsonProcessingException error) {
            // refused below
        }
        throw refused(name, "a JSON object of stores' paths and names");
    }

    /** Returns the comma-separated names of an option, null if it is not given. */
    public List<String> names(String name) {
        String value = given.get(name);
        if (value == null) {
            return null;
        }
        List<String> names = Arrays.stream(value.split(",", -1)).map(String::strip).toList();
        if (names.contains("")) {
            throw refused(name, "a comma-separated list of names");
        }
        return names;
    }

    Set<Integer> queueIds(String name) {
        List<String> names = names(name);
        if (names == null) {
            return null;
        }
        return names.stream().map(one -> (int) Math.min(whole(name, one), Integer.MAX_VALUE)).collect(Collectors.toSet());
    }

    /** Returns a number that is not negative, null if the option is not given. */
    public Long number(String name) {
        String value = given.get(name);
        return value == null ? null : Long.valueOf(whole(name, value));
    }

    private static long whole(String name, String value) {
        if (value.matches("[0-9]{1,30}")) {
            try {
                return Long.parseLong(value);
            } catch (NumberFormatException error) {
                // too large
            }
        }
        throw ReadException.option(
                "option " + name + " is '" + value + "': it must be an integer from 0 to " + Long.MAX_VALUE);
    }

    /** Returns the bytes of a size such as {@code 128m}, null if the option is not given. */
    public Long size(String name) {
        String value = given.get(name);
        if (value == null) {
            return null;
        }
        Matcher match = SIZE.matcher(value);
        long number = match.matches() ? Long.parseLong(match.group(1)) : 0;
        if (number == 0) {
            throw refused(name, "a positive size such as 134217728 or 128m");
        }
        return switch (match.group(2).toLowerCase(Locale.ROOT)) {
            case "k" -> number << 10;
            case "m" -> number << 20;
            case "g" -> number << 30;
            default -> number;
        };
    }

    Long timestampUs(String name) {
        String value = given.get(name);
        if (value == null) {
            return null;
        }
        if (value.matches("[0-9]+")) {
            long ms = whole(name, value);
            return ms > Long.MAX_VALUE / 1000 ? Long.MAX_VALUE : ms * 1000;
        }
        try {
            TemporalAccessor time = TIME.parseBest(value, OffsetDateTime::from, LocalDateTime::from, LocalDate::from);
            OffsetDateTime moment = time instanceof OffsetDateTime zoned ? zoned
                    : time instanceof LocalDateTime local ? local.atOffset(ZoneOffset.UTC)
                    : ((LocalDate) time).atStartOfDay().atOffset(ZoneOffset.UTC);
            return ChronoUnit.MICROS.between(OffsetDateTime.of(1970, 1, 1, 0, 0, 0, 0, ZoneOffset.UTC), moment);
        } catch (DateTimeException error) {
            throw refused(name, "ms since 1970, or a time such as 2026-11-21T17:39:39.542Z");
        }
    }

    /** Returns the ms of each level of a {@code messageDelayLevel} such as {@code 1s 5s 2h}. */
    long[] delaysMs(String name, String otherwise) {
        String[] entries = text(name, otherwise).split("\\s+");
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

    /** Returns the matching one of {@code values}, ignoring case; the first is the default. */
    public String oneOf(String name, List<String> values) {
        String value = text(name, values.get(0));
        for (String known : values) {
            if (known.equalsIgnoreCase(value)) {
                return known;
            }
        }
        throw ReadException.option(
                "option " + name + " is " + value + ": it must be one of " + String.join(", ", values));
    }

    /** Returns whether an option is true. */
    public boolean flag(String name, boolean otherwise) {
        String value = text(name, Boolean.toString(otherwise));
        if (!value.equalsIgnoreCase("true") && !value.equalsIgnoreCase("false")) {
            throw refused(name, "true or false");
        }
        return value.equalsIgnoreCase("true");
    }

    /** Returns the refusal of the value of an option, which must be something else. */
    private ReadException refused(String name, String allowed) {
        return ReadException.option("option " + name + " is '" + given.get(name) + "': it must be " + allowed);
    }

    void checkOrder(String kind, Long starting, Long ending) {
        if (starting != null && ending != null && starting > ending) {
            throw ReadException.option("option starting" + kind + " is " + given.get("starting" + kind)
                    + ": it must not be greater than ending" + kind + ", " + given.get("ending" + kind));
        }
    }

    // --- suggestions ------------------------------------------------------------------------------------------------

    /** Returns {@code did you mean X?}, or the list of all known names if none is similar. */
    public static String nearest(String name, Collection<String> known) {
        ToDoubleFunction<String> score = one -> similarity(name.toLowerCase(Locale.ROOT), one.toLowerCase(Locale.ROOT));
        return known.stream().max(Comparator.comparingDouble(score)).filter(best -> score.applyAsDouble(best) >= SIMILAR)
                .map(best -> "did you mean " + best + "?")
                .orElseGet(() -> "known names are " + String.join(", ", known));
    }

    /** Returns twice the length of the longest common subsequence in relation to both lengths. */
    private static double similarity(String one, String other) {
        return 2.0 * new LongestCommonSubsequence().apply(one, other) / Math.max(one.length() + other.length(), 1);
    }
}
