package org.tvmcodl.rpc.serve;

/** A setting that cannot be used; the message is for the person who typed it. */
public final class SettingsError extends Exception {
    private static final long serialVersionUID = 1L;

    public final Settings.Field field;

    public SettingsError(Settings.Field field, String message) {
        super(message);
        this.field = field;
    }
}
