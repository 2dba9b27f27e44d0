package org.tvmcodl.rpc.serve;

import java.io.IOException;

/** A process that serves one client and ends.  On Android a service in a process of its own, on a JVM a child JVM. */
public interface SessionProcess {
    /** Ends it at once, whatever it is doing; {@link Listener#ended} follows.  Harmless where it has ended already. */
    void kill();

    /** Both are called on the supervisor's {@link Loop}. */
    interface Listener {
        void said(SessionEvent event);

        /** The process is gone; {@code how} is what the system knows about it ("exit code 134").  Called once. */
        void ended(String how);
    }

    /** Makes such processes. */
    interface Starter {
        /** Throws {@link IOException} where the process cannot even be started. */
        SessionProcess start(Settings settings, Listener listener) throws IOException;
    }
}
