package pocketmq.spark.reading;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.columns.Rows;

/** Handling of damage by mode, FAILFAST, PERMISSIVE or DROPMALFORMED, as in Spark's own data sources. */
public final class Damage {
    private static final Logger LOG = LoggerFactory.getLogger(Damage.class);

    private final String mode;
    private final Pruning pruning;

    public Damage(String mode, Pruning pruning) {
        this.mode = mode;
        this.pruning = pruning;
    }

    /** Returns whether a row is to be shown for damaged bytes. Throws ReadException in mode FAILFAST. */
    public boolean isShown(DamagedBytes damaged) {
        tell(damaged.file().path(), damaged.physicalOffset(), damaged.why());
        // Topic, queue and time of damaged bytes are unknown, so they match no selection by these.
        return mode.equals("PERMISSIVE") && !pruning.asksWhatDamageCannotTell()
                && pruning.physicalOffsets().has(damaged.physicalOffset());
    }

    /** Handles the rows whose body could not be decompressed. Throws ReadException in mode FAILFAST. */
    public void bodies(Rows rows) {
        int row = rows.damagedBody(0);
        while (row >= 0) {
            tell(rows.path.toString(), rows.physicalOffset(row), "its body cannot be decompressed");
            if (mode.equals("DROPMALFORMED")) {
                rows.drop(row);
                row = rows.damagedBody(row);
            } else {
                row = rows.damagedBody(row + 1);
            }
        }
    }

    private void tell(String path, long physicalOffset, String what) {
        String message = "damaged record at physical offset " + physicalOffset + " of " + path + ": " + what;
        if (mode.equals("FAILFAST")) {
            throw new ReadException(ErrorCondition.ROCKETMQ_DAMAGED_RECORD, message + "; .option(\"mode\", \"DROPMALFORMED\") leaves it out, \"PERMISSIVE\" shows it");
        }
        LOG.warn(message);
    }
}
