package org.tvmcodl.rpc.serve;

/** What the screen, the notification and the log show. */
public final class Status {
    public final State state;

    /** For the user: where it listens, which client it serves, how long it waits. */
    public final String detail;

    /** The last error since the start, or "". */
    public final String lastError;

    /** Sessions that ended normally, that died, and that the watchdog ended. */
    public final int served;
    public final int crashed;
    public final int hung;

    Status(State state, String detail, String lastError, int served, int crashed, int hung) {
        this.state = state;
        this.detail = detail;
        this.lastError = lastError;
        this.served = served;
        this.crashed = crashed;
        this.hung = hung;
    }

    public static Status stopped() {
        return new Status(State.STOPPED, "", "", 0, 0, 0);
    }

    @Override
    public String toString() {
        return state + (detail.isEmpty() ? "" : " (" + detail + ")") + ", " + served + " served, " + crashed
                + " crashed, " + hung + " hung" + (lastError.isEmpty() ? "" : "; last error: " + lastError);
    }
}
