package org.tvmcodl.rpc.serve;

/** An unusable setting; the message is for the user. */
public final class SettingsError extends Exception {
    private static final long serialVersionUID = 1L;

    public final Settings.Field field;

    public SettingsError(Settings.Field field, String message) {
        super(message);
        this.field = field;
    }
}
