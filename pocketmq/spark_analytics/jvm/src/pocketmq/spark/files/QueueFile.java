package pocketmq.spark.files;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * One file of a ConsumeQueue. A queue ends with its last unit: the rest of its last file is zero.
 *
 * @param start offset of the file's first byte within the queue
 * @param size in bytes
 */
public record QueueFile(StoreFiles files, String path, long start, long size) {
    /** Size of a unit that stands before the first unit of a queue and points to no record. */
    public static final int BLANK_UNIT_SIZE = 0x7FFFFFFF;

    private static final int UNIT = Layout.CONSUME_QUEUE_UNIT_SIZE;

    /** Returns the ids of the queues of a topic that have a folder, ascending. */
    public static List<Integer> queueIds(StoreFiles files, String root, String topic) throws IOException {
        String folder = StoreFiles.join(root, "consumequeue", topic);
        List<String> names = files.isFolder(folder) ? files.names(folder) : List.of();
        return names.stream().filter(name -> name.matches("[0-9]{1,9}")).map(Integer::valueOf).sorted().toList();
    }

    /**
     * Returns the files of a queue, ascending, without empty ones at its end.
     *
     * <p>Throws IOException for a file whose size is not a multiple of the unit size, and for a missing file.
     */
    public static List<QueueFile> of(StoreFiles files, String root, String topic, int queueId) throws IOException {
        String folder = StoreFiles.join(root, "consumequeue", topic, Integer.toString(queueId));
        List<QueueFile> row = new ArrayList<>();
        for (LogFile file : files.isFolder(folder) ? LogFiles.listed(files, folder) : List.<LogFile>of()) {
            if (file.size() % UNIT != 0) {
                throw new IOException(file.path() + " has " + file.size() + " bytes, which is not a multiple of " + UNIT);
            }
            QueueFile before = row.isEmpty() ? null : row.get(row.size() - 1);
            if (file.size() > 0 && before != null && before.start + before.size != file.physicalOffset()) {
                throw new IOException(
                        file.path() + " does not begin where " + before.path + " ends: a file is missing between them");
            }
            if (file.size() > 0) {
                row.add(new QueueFile(files, file.path(), file.physicalOffset(), file.size()));
            }
        }
        // Preallocated, or emptied by a power cut.
        while (row.size() > 1 && !row.get(row.size() - 1).hasUnits()) {
            row.remove(row.size() - 1);
        }
        return row;
    }

    private boolean hasUnits() throws IOException {
        try (FileBytes bytes = files.openPlanned(path)) {
            return isUnit(bytes, 0);
        }
    }

    /**
     * Returns the number of units. Throws IOException if units {@code mayLack} nowhere, but further ones lie behind a gap: units
     * lost in a power cut read as zeros, in whole pages, like units that were never written.
     */
    public int count(boolean mayLack) throws IOException {
        int capacity = (int) (size / UNIT);
        int low = 0;
        int high = capacity;
        try (FileBytes bytes = files.openPlanned(path)) {
            while (low < high) {
                // A full file is recognised at once by its last unit.
                int middle = high == capacity ? high - 1 : (low + high) >>> 1;
                if (isUnit(bytes, middle)) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            for (int ahead = 1; !mayLack && low + ahead < capacity; ahead *= 2) {
                if (isUnit(bytes, low + ahead)) {
                    throw lacking();
                }
            }
        }
        return low;
    }

    private IOException lacking() {
        return new IOException(path + " has lost units");
    }

    private static boolean isUnit(FileBytes bytes, int number) throws IOException {
        byte[] unit = bytes.bytes((long) number * UNIT, UNIT);
        return unit.length == UNIT && isUnit(unit, 0);
    }

    private static boolean isUnit(byte[] data, int at) {
        return BigEndian.int4(data, at + Layout.UNIT_SIZE_POSITION) > 0
                && BigEndian.int8(data, at + Layout.UNIT_PHYSICAL_OFFSET_POSITION) >= 0;
    }

    /** Returns the number of the first of {@code count} units that points to a physical offset or behind it. */
    public int firstFrom(long physicalOffset, int count) throws IOException {
        int low = 0;
        int high = count;
        try (FileBytes bytes = files.openPlanned(path)) {
            while (low < high) {
                int middle = (low + high) >>> 1;
                byte[] unit = bytes.bytes((long) middle * UNIT, UNIT);
                if (unit.length < UNIT || !isUnit(unit, 0)) {
                    throw lacking();
                }
                if (BigEndian.int8(unit, Layout.UNIT_PHYSICAL_OFFSET_POSITION) < physicalOffset) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
        }
        return low;
    }

    /** Returns the bytes of the units {@code first} to {@code stop}. Throws IOException if some are lost. */
    public byte[] units(int first, int stop) throws IOException {
        int count = Math.max(stop - first, 0);
        try (FileBytes bytes = files.openPlanned(path)) {
            byte[] data = bytes.bytes((long) first * UNIT, count * UNIT);
            for (int at = 0; at < count * UNIT; at += UNIT) {
                if (at + UNIT > data.length || !isUnit(data, at)) {
                    throw lacking();
                }
            }
            return data;
        }
    }

    /** The record that a unit points to. */
    public record Unit(long physicalOffset, int size) {}

    /** Returns the newest unit of a queue, null if it has none that points to a record. */
    public static Unit newest(List<QueueFile> row) throws IOException {
        QueueFile last = row.isEmpty() ? null : row.get(row.size() - 1);
        int count = last == null ? 0 : last.count(true);
        if (count == 0) {
            return null;
        }
        byte[] unit = last.units(count - 1, count);
        int size = BigEndian.int4(unit, Layout.UNIT_SIZE_POSITION);
        long physicalOffset = BigEndian.int8(unit, Layout.UNIT_PHYSICAL_OFFSET_POSITION);
        return size == BLANK_UNIT_SIZE ? null : new Unit(physicalOffset, size);
    }
}
