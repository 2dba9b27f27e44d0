package androidx.test.runner.intent;

public final class IntentStubberRegistry {
    private IntentStubberRegistry() {}

    /** Nothing here answers intents. */
    public static boolean isLoaded() {
        return false;
    }
}
