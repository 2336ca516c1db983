package pocketmq.spark.reading;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.QueueFile;

/** The units of one queue, taken stretch by stretch in the order of the log. */
final class QueueUnits {
    private static final int UNIT = Layout.CONSUME_QUEUE_UNIT_SIZE;
    /** Most queues of a store are short, and often only the first units are needed. */
    private static final int UNITS_READ_FIRST = 256;

    private static final int UNITS_READ = 1 << 16;

    private record Counted(QueueFile file, int count) {}

    /** Consecutive units, and the queue offset of the first. */
    record Taken(long queueOffset, byte[] units) {}

    final String topic;
    final int queueId;
    private final Deque<Counted> files = new ArrayDeque<>();
    private int number;

    /** {@code begin}: the first unit taken is the first that points there or behind. Throws IOException. */
    QueueUnits(String topic, int queueId, List<QueueFile> row, long begin) throws IOException {
        this.topic = topic;
        this.queueId = queueId;
        for (QueueFile file : row) {
            int count = file.count(false);
            int first = files.isEmpty() ? file.firstFrom(begin, count) : 0;
            if (first < count) {
                number = files.isEmpty() ? first : number;
                files.add(new Counted(file, count));
            }
        }
    }

    /** The bytes of the units that were not taken yet. */
    long size() {
        return (files.stream().mapToLong(Counted::count).sum() - number) * UNIT;
    }

    /** Returns the next units before the first that points to {@code stop} or behind. */
    Taken take(long stop) throws IOException {
        long queueOffset = files.isEmpty() ? 0 : files.peek().file.start() / UNIT + number;
        ByteArrayOutputStream taken = new ByteArrayOutputStream();
        int wanted = UNITS_READ_FIRST;
        while (!files.isEmpty()) {
            Counted next = files.peek();
            int asked = Math.min(wanted, next.count - number);
            byte[] units = next.file.units(number, number + asked);
            int own = 0;
            while (own < asked && BigEndian.int8(units, own * UNIT + Layout.UNIT_PHYSICAL_OFFSET_POSITION) < stop) {
                own++;
            }
            taken.write(units, 0, own * UNIT);
            number += own;
            if (own < asked) {
                break;
            }
            if (number == next.count) {
                files.remove();
                number = 0;
            }
            wanted = UNITS_READ;
        }
        return new Taken(queueOffset, taken.toByteArray());
    }
}
