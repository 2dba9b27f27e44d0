package androidx.test.platform.app;

import android.app.Instrumentation;
import android.os.Bundle;

/** What Robolectric loads of androidx.test, which is not on Maven Central: registers, and nothing else. */
public final class InstrumentationRegistry {
    private static Instrumentation registered;

    private InstrumentationRegistry() {}

    public static void registerInstance(Instrumentation instrumentation, Bundle arguments) {
        registered = instrumentation;
    }

    public static Instrumentation getInstrumentation() {
        return registered;
    }
}
