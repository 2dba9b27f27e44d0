package org.tvmcodl.rpc;

import android.content.Context;
import android.content.SharedPreferences;
import org.tvmcodl.rpc.serve.Mode;
import org.tvmcodl.rpc.serve.Settings;
import org.tvmcodl.rpc.serve.SettingsError;

/** The settings of the last start, which the screen shows at the next. */
final class SavedSettings {
    private static final String WORDS = "settings";
    private static final String DEFAULT_KEY = "android";

    private final SharedPreferences kept;

    SavedSettings(Context context) {
        kept = context.getSharedPreferences("server", Context.MODE_PRIVATE);
    }

    void save(Settings settings) {
        kept.edit().putString(WORDS, join(settings.words())).apply();
    }

    Settings load() {
        try {
            return Settings.parse(kept.getString(WORDS, "").split(" "));
        } catch (SettingsError none) {
            return usual();
        }
    }

    /** For a phone on a USB cable. */
    private static Settings usual() {
        try {
            return Settings.of(
                    Mode.PROXY.word(),
                    Settings.DEFAULT_HOST,
                    Integer.toString(Settings.DEFAULT_PORT),
                    DEFAULT_KEY,
                    Integer.toString(Settings.DEFAULT_LIMIT_S));
        } catch (SettingsError error) {
            throw new AssertionError(error);
        }
    }

    private static String join(String[] words) {
        StringBuilder joined = new StringBuilder(words[0]);
        for (int i = 1; i < words.length; i++) {
            joined.append(' ').append(words[i]);
        }
        return joined.toString();
    }
}
