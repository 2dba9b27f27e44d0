package org.tvmcodl.rpc.serve;

/** The one thread on which a supervisor lives: Android's main looper, or an executor on a JVM. */
public interface Loop {
    /** A planned call, until it is cancelled. */
    interface Alarm {
        void cancel();
    }

    Alarm after(long millis, Runnable what);
}
