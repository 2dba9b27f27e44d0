package org.tvmcodl.rpc;

import android.content.Context;
import android.content.SharedPreferences;
import android.text.TextUtils;
import org.tvmcodl.rpc.serve.Settings;
import org.tvmcodl.rpc.serve.SettingsError;

/** The settings of the last start, which the screen shows at the next. */
final class SavedSettings {
    private static final String WORDS = "settings";

    /** For a phone on a USB cable. */
    private static final String DEFAULT = "proxy 127.0.0.1 9090 android 3600";

    private final SharedPreferences preferences;

    SavedSettings(Context context) {
        preferences = context.getSharedPreferences("server", Context.MODE_PRIVATE);
    }

    void save(Settings settings) {
        preferences.edit().putString(WORDS, TextUtils.join(" ", settings.words())).apply();
    }

    Settings load() {
        for (String words : new String[] {preferences.getString(WORDS, DEFAULT), DEFAULT}) {
            try {
                return Settings.parse(words.split(" "));
            } catch (SettingsError unusable) {
                // the default is not
            }
        }
        throw new AssertionError(DEFAULT);
    }
}
