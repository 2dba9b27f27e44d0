package androidx.test.runner.lifecycle;

public final class ActivityLifecycleMonitorRegistry {
    private static ActivityLifecycleMonitor registered;

    private ActivityLifecycleMonitorRegistry() {}

    public static void registerInstance(ActivityLifecycleMonitor monitor) {
        registered = monitor;
    }

    public static ActivityLifecycleMonitor getInstance() {
        return registered;
    }
}
