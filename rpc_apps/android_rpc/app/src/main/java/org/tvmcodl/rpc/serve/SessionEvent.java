package org.tvmcodl.rpc.serve;

/** An event from a session's process to the supervisor.  One line of text, for any pipe or message. */
public final class SessionEvent {
    public enum Kind {
        /** Registered and waiting for a client; the text says where. */
        LISTENING,
        /** A client is connected; {@link #limitSeconds} is how long it may stay. */
        SERVING,
        /** The client closed the session. */
        FINISHED,
        /** Nobody came for a while: register again, in case the registration was lost unnoticed. */
        RENEW,
        /** It cannot serve; the text says why. */
        FAILED
    }

    public final Kind kind;
    public final int limitSeconds;
    public final String text;

    public SessionEvent(Kind kind, int limitSeconds, String text) {
        this.kind = kind;
        this.limitSeconds = limitSeconds;
        this.text = text.replaceAll("\\s+", " ").trim();
    }

    public SessionEvent(Kind kind, String text) {
        this(kind, 0, text);
    }

    public String line() {
        return kind + " " + limitSeconds + " " + text;
    }

    /** Reads what {@link #line} wrote.  Throws {@link IllegalArgumentException} for anything else. */
    public static SessionEvent parse(String line) {
        String[] parts = line == null ? new String[0] : line.split(" ", 3);
        if (parts.length != 3) {
            throw new IllegalArgumentException("not an event of a session: " + line);
        }
        return new SessionEvent(Kind.valueOf(parts[0]), Integer.parseInt(parts[1]), parts[2]);
    }

    @Override
    public String toString() {
        return line();
    }
}
