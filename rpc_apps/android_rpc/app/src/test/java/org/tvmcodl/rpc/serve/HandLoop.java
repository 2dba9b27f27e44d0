package org.tvmcodl.rpc.serve;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;

/** A loop whose clock the test turns. */
final class HandLoop implements Loop {
    private static final class Planned {
        long at;
        Runnable what;
    }

    private final List<Planned> planned = new ArrayList<>();
    private long now;

    @Override
    public Alarm after(long millis, Runnable what) {
        Planned one = new Planned();
        one.at = now + millis;
        one.what = what;
        planned.add(one);
        return () -> planned.remove(one);
    }

    /** Runs what is due within these milliseconds, in order. */
    void turn(long millis) {
        long until = now + millis;
        while (true) {
            Planned next = planned.stream()
                    .filter(one -> one.at <= until)
                    .min(Comparator.comparingLong(one -> one.at))
                    .orElse(null);
            if (next == null) {
                break;
            }
            planned.remove(next);
            now = Math.max(now, next.at);
            next.what.run();
        }
        now = until;
    }

    int waiting() {
        return planned.size();
    }
}
