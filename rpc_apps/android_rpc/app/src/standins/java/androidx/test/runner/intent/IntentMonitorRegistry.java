package androidx.test.runner.intent;

public final class IntentMonitorRegistry {
    private static IntentMonitor registered;

    private IntentMonitorRegistry() {}

    public static void registerInstance(IntentMonitor monitor) {
        registered = monitor;
    }

    public static IntentMonitor getInstance() {
        return registered;
    }
}
