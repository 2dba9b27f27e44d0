package org.tvmcodl.rpc.serve;

/** How long to wait after failures in a row: one second, then twice as long each time, at most half a minute. */
public final class BackOff {
    public static final long FIRST_MS = 1000;
    public static final long LONGEST_MS = 30000;

    private long next = FIRST_MS;

    public long failed() {
        long pause = next;
        next = Math.min(2 * next, LONGEST_MS);
        return pause;
    }

    public void succeeded() {
        next = FIRST_MS;
    }
}
