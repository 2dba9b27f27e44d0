package org.tvmcodl.rpc.serve;

/** The one thread on which a supervisor lives: Android's main looper, or an executor on a JVM. */
public interface Loop {
    /** Something that will be run unless it is cancelled first. */
    interface Alarm {
        void cancel();
    }

    Alarm after(long millis, Runnable what);
}
