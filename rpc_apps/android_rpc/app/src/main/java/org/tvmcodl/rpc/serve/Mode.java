package org.tvmcodl.rpc.serve;

/** How clients find this phone. */
public enum Mode {
    /** The phone connects to a proxy and serves through that one connection. */
    PROXY,
    /** The phone registers with a tracker and opens a port of its own, which the tracker tells to clients. */
    TRACKER,
    /** The phone opens a port and clients know where it is. */
    LISTEN;

    public String word() {
        return name().toLowerCase(java.util.Locale.ROOT);
    }

    /** Throws {@link SettingsError} for any other word. */
    public static Mode of(String word) throws SettingsError {
        for (Mode mode : values()) {
            if (mode.word().equals(word)) {
                return mode;
            }
        }
        throw new SettingsError(Settings.Field.MODE, "the mode is proxy, tracker or listen, not \"" + word + "\"");
    }
}
