package org.tvmcodl.rpc.serve;

import java.io.IOException;

/** A process that serves one client and ends.  On Android a service in a process of its own, on a JVM a child JVM. */
public interface SessionProcess {
    /** Ends it at once; {@link Listener#ended} follows.  Harmless after its end. */
    void kill();

    /** Both are called on the supervisor's {@link Loop}. */
    interface Listener {
        void said(SessionEvent event);

        /** The process is gone; {@code how} is the system's reason ("exit code 134").  Called once. */
        void ended(String how);
    }

    /** Makes such processes. */
    interface Starter {
        /** Throws {@link IOException} if the process cannot be started. */
        SessionProcess start(Settings settings, Listener listener) throws IOException;
    }
}
