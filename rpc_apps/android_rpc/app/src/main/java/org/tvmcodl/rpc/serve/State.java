package org.tvmcodl.rpc.serve;

import java.util.EnumSet;
import java.util.Set;

/** What the server is doing.  {@link #next} has all transitions; any other is a bug. */
public enum State {
    /** Nobody asked it to serve. */
    STOPPED,
    /** A session's process is starting, or connecting to the tracker or the proxy. */
    STARTING,
    /** Registered, and waiting for a client. */
    LISTENING,
    /** A client is connected. */
    SERVING,
    /** Something failed; the next try comes after a pause. */
    WAITING,
    /** A session's process is being ended. */
    ENDING;

    public Set<State> next() {
        switch (this) {
            case STOPPED:
                return EnumSet.of(STARTING);
            case STARTING:
                return EnumSet.of(LISTENING, SERVING, STARTING, WAITING, ENDING, STOPPED);
            case LISTENING:
                return EnumSet.of(SERVING, STARTING, WAITING, ENDING, STOPPED);
            case SERVING:
                return EnumSet.of(STARTING, WAITING, ENDING, STOPPED);
            case WAITING:
                return EnumSet.of(STARTING, STOPPED);
            default:
                return EnumSet.of(STARTING, WAITING, STOPPED);
        }
    }

    public boolean mayBecome(State other) {
        return next().contains(other);
    }
}
