package org.tvmcodl.rpc.serve;

import java.util.regex.Pattern;

/** Where to serve, under which key, and for how long at most. */
public final class Settings {
    /** What can be wrong: the screen shows the error at this field. */
    public enum Field { MODE, HOST, PORT, KEY, LIMIT }

    /** TVM's handshakes use blanks and colons as separators; the tracker's messages are JSON. */
    private static final Pattern KEY = Pattern.compile("[A-Za-z0-9._-]{1,64}");

    private static final Pattern HOST = Pattern.compile("[A-Za-z0-9._:%-]{1,253}");

    public final Mode mode;
    public final String host;
    public final int port;
    public final String key;

    /** No session is longer than this, in seconds; a client may ask for less. */
    public final int limitSeconds;

    private Settings(Mode mode, String host, int port, String key, int limitSeconds) {
        this.mode = mode;
        this.host = host;
        this.port = port;
        this.key = key;
        this.limitSeconds = limitSeconds;
    }

    /** Checks what was typed.  Throws {@link SettingsError} for the first field that cannot be used. */
    public static Settings of(String mode, String host, String port, String key, String limitSeconds)
            throws SettingsError {
        Mode way = Mode.of(mode.trim());
        String address = host.trim();
        if (!HOST.matcher(address).matches()) {
            throw new SettingsError(Field.HOST, "the address is a name or an IP address, such as 127.0.0.1");
        }
        int number = whole(Field.PORT, "the port", port, 1, 65535);
        String name = key.trim();
        if (!KEY.matcher(name).matches()) {
            throw new SettingsError(Field.KEY, "the key is 1 to 64 letters, digits, dots, dashes or underscores");
        }
        int limit = whole(Field.LIMIT, "the session limit in seconds", limitSeconds, 1, 7 * 24 * 3600);
        return new Settings(way, address, number, name, limit);
    }

    private static int whole(Field field, String what, String typed, int least, int most) throws SettingsError {
        try {
            int value = Integer.parseInt(typed.trim());
            if (value >= least && value <= most) {
                return value;
            }
        } catch (NumberFormatException error) {
            // as for a number out of range
        }
        throw new SettingsError(field, what + " is a whole number from " + least + " to " + most);
    }

    /** The five words that {@link #parse} takes; settings are sent to another process as these. */
    public String[] words() {
        return new String[] {mode.word(), host, Integer.toString(port), key, Integer.toString(limitSeconds)};
    }

    public static Settings parse(String[] words) throws SettingsError {
        if (words == null || words.length != 5) {
            throw new SettingsError(Field.MODE, "settings are five words: mode, address, port, key, session limit");
        }
        return of(words[0], words[1], words[2], words[3], words[4]);
    }

    /** For the screen and the notification: "proxy 127.0.0.1:9090, key pixel". */
    @Override
    public String toString() {
        String at = host.indexOf(':') >= 0 ? "[" + host + "]" : host;
        return mode.word() + " " + at + ":" + port + ", key " + key;
    }
}
