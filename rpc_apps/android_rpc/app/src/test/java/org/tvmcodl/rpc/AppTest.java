package org.tvmcodl.rpc;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.robolectric.Shadows.shadowOf;

import android.Manifest;
import android.app.Application;
import android.app.Notification;
import android.content.ComponentName;
import android.content.Intent;
import android.content.pm.PackageInfo;
import android.content.pm.PackageManager;
import android.content.pm.ServiceInfo;
import android.os.Looper;
import android.os.PowerManager;
import android.widget.Button;
import android.widget.EditText;
import android.widget.RadioGroup;
import android.widget.TextView;
import java.time.Duration;
import java.util.Set;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.android.controller.ServiceController;
import org.robolectric.shadows.ShadowPowerManager;
import org.robolectric.shadows.ShadowProcess;
import org.tvmcodl.rpc.serve.SessionEvent.Kind;
import org.tvmcodl.rpc.serve.Settings;
import org.tvmcodl.rpc.serve.State;
import org.tvmcodl.rpc.serve.Status;
import org.tvmcodl.rpc.serve.Supervisor;

/** The screen and the services on Android's own classes; the session's process is {@link FakeSession}. */
@RunWith(RobolectricTestRunner.class)
public final class AppTest {
    private static final String[] WORDS = {"tracker", "192.168.1.7", "9190", "pixel", "60"};

    private Application application;
    private FakeSession session;

    @Before
    public void prepare() {
        application = RuntimeEnvironment.getApplication();
        session = new FakeSession(application);
    }

    private ServiceController<ServerService> serving() throws Exception {
        Intent start = ServerService.startIntent(application, Settings.parse(WORDS));
        ServiceController<ServerService> service =
                Robolectric.buildService(ServerService.class, start).create().startCommand(0, 1);
        idle();
        return service;
    }

    /** The service as the screen binds it, not started yet. */
    private ServiceController<ServerService> bound() {
        ServiceController<ServerService> service = Robolectric.buildService(ServerService.class).create();
        shadowOf(application).setComponentNameAndServiceForBindServiceForIntent(
                new Intent(application, ServerService.class),
                new ComponentName(application, ServerService.class),
                service.get().onBind(null));
        return service;
    }

    private static void idle() {
        shadowOf(Looper.getMainLooper()).idle();
    }

    private static Status status(ServiceController<ServerService> service) {
        return ((ServerService.Local) service.get().onBind(null)).status();
    }

    private static boolean awake() {
        PowerManager.WakeLock lock = ShadowPowerManager.getLatestWakeLock();
        return lock != null && lock.isHeld();
    }

    @Test
    public void startingShowsANotificationSavesTheSettingsAndStartsASession() throws Exception {
        ServiceController<ServerService> service = serving();
        Notification shown = shadowOf(service.get()).getLastForegroundNotification();
        assertNotNull(shown);
        assertEquals(1, shown.actions.length);
        assertEquals("Stop", shown.actions[0].title);
        assertEquals(1, session.started.size());
        assertArrayEquals(WORDS, session.started.get(0));
        assertArrayEquals(WORDS, new SavedSettings(application).load().words());
        session.say(Kind.LISTENING, 0, "port 5001");
        assertEquals(State.LISTENING, status(service).state);
        assertFalse("no client, no wake lock", awake());
    }

    @Test
    public void aCrashIsShownAndItListensAgain() throws Exception {
        ServiceController<ServerService> service = serving();
        session.say(Kind.LISTENING, 0, "port 5001");
        session.say(Kind.SERVING, 60, "a client");
        assertTrue(awake());
        session.die();
        assertFalse(awake());
        assertEquals(2, session.started.size());
        session.say(Kind.LISTENING, 0, "port 5001");
        Status status = status(service);
        assertEquals(State.LISTENING, status.state);
        assertEquals(1, status.crashed);
        assertTrue(status.lastError, status.lastError.contains("died while it served"));
    }

    @Test
    public void aHungSessionIsKilledAtItsLimit() throws Exception {
        ServiceController<ServerService> service = serving();
        session.say(Kind.LISTENING, 0, "port 5001");
        session.say(Kind.SERVING, 5, "a client");
        shadowOf(Looper.getMainLooper()).idleFor(Duration.ofMillis(4900));
        assertFalse(ShadowProcess.wasKilled(FakeSession.PID));
        shadowOf(Looper.getMainLooper()).idleFor(Duration.ofMillis(200));
        assertTrue(ShadowProcess.wasKilled(FakeSession.PID));
        assertEquals(2, session.started.size());
        assertEquals(1, status(service).hung);
        assertFalse(awake());
    }

    @Test
    public void theNotificationsButtonStopsIt() throws Exception {
        ServiceController<ServerService> service = serving();
        session.say(Kind.LISTENING, 0, "port 5001");
        Notification shown = shadowOf(service.get()).getLastForegroundNotification();
        Intent stop = shadowOf(shown.actions[0].actionIntent).getSavedIntent();
        assertEquals(ServerService.class.getName(), stop.getComponent().getClassName());
        service.get().onStartCommand(stop, 0, 2);
        idle();
        assertEquals(State.STOPPED, status(service).state);
        assertTrue(shadowOf(service.get()).isForegroundStopped());
        assertTrue(shadowOf(service.get()).isStoppedBySelf());
        assertTrue("the session's process goes too", ShadowProcess.wasKilled(FakeSession.PID));
    }

    @Test
    public void aStopThatFindsNothingToStopShowsItsNotificationAllTheSame() {
        Intent stop = new Intent(application, ServerService.class).setAction(ServerService.STOP);
        ServiceController<ServerService> service =
                Robolectric.buildService(ServerService.class, stop).create().startCommand(0, 1);
        idle();
        // Without it, Android ends an app whose service was started in the foreground.
        assertEquals(ServerNotification.ID, shadowOf(service.get()).getLastForegroundNotificationId());
        assertTrue(shadowOf(service.get()).isForegroundStopped());
        assertTrue(shadowOf(service.get()).isStoppedBySelf());
        assertEquals(0, session.started.size());
    }

    @Test
    public void aBindingThatIsLostOrRefusedIsTheEndOfItsSession() throws Exception {
        ServiceController<ServerService> service = serving();
        session.say(Kind.LISTENING, 0, "port 5001");
        session.say(Kind.SERVING, 60, "a client");
        session.loseBinding();
        assertEquals(1, status(service).crashed);
        assertEquals(2, session.started.size());
        session.refuseBinding();
        assertEquals(State.WAITING, status(service).state);
        assertTrue(status(service).lastError, status(service).lastError.contains("nothing to bind to"));
    }

    @Test
    public void whatIsNoEventIsAFailureOfTheSession() throws Exception {
        ServiceController<ServerService> service = serving();
        for (String line : new String[] {"SERVING soon a client", null}) {
            int before = session.started.size();
            session.say(Kind.LISTENING, 0, "port 5001");
            session.say(line);
            shadowOf(Looper.getMainLooper()).idleFor(Duration.ofMillis(Supervisor.END_MS + 100));
            assertEquals(State.WAITING, status(service).state);
            assertTrue(status(service).lastError, status(service).lastError.contains("broke its protocol"));
            shadowOf(Looper.getMainLooper()).idleFor(Duration.ofMillis(Supervisor.LONGEST_PAUSE_MS));
            assertEquals(before + 1, session.started.size());
        }
    }

    @Test
    public void aStartWithoutSettingsTakesTheLastOnesAndAWrongOneIsRefused() throws Exception {
        serving().destroy();
        Intent bare = new Intent(application, ServerService.class).putExtra("port", 9191);
        ServiceController<ServerService> service =
                Robolectric.buildService(ServerService.class, bare).create().startCommand(0, 1);
        idle();
        assertEquals("9191", session.started.get(session.started.size() - 1)[2]);
        session.say(Kind.LISTENING, 0, "port 5001");
        int before = session.started.size();
        Intent wrong = new Intent(bare).putExtra("key", "not a key");
        service.get().onStartCommand(wrong, 0, 2);
        idle();
        assertEquals("what runs well goes on", State.LISTENING, status(service).state);
        assertFalse(shadowOf(service.get()).isStoppedBySelf());
        assertFalse(shadowOf(service.get()).isForegroundStopped());
        service.destroy();
        ServiceController<ServerService> other =
                Robolectric.buildService(ServerService.class, wrong).create().startCommand(0, 1);
        idle();
        assertEquals(before, session.started.size());
        assertTrue(shadowOf(other.get()).isStoppedBySelf());
        assertEquals("pixel", new SavedSettings(application).load().key);
    }

    @Test
    public void theScreenStartsWithWhatWasTypedAndShowsTheStatus() throws Exception {
        ServiceController<ServerService> service = bound();
        ComponentName name = new ComponentName(application, ServerService.class);
        shadowOf(application).grantPermissions(Manifest.permission.POST_NOTIFICATIONS);
        try (ActivityController<MainActivity> screen = Robolectric.buildActivity(MainActivity.class)) {
            MainActivity activity = screen.setup().get();
            idle();
            assertEquals("127.0.0.1", ((EditText) activity.findViewById(R.id.host)).getText().toString());
            ((RadioGroup) activity.findViewById(R.id.mode)).check(R.id.mode_tracker);
            ((EditText) activity.findViewById(R.id.host)).setText(WORDS[1]);
            ((EditText) activity.findViewById(R.id.port)).setText(WORDS[2]);
            ((EditText) activity.findViewById(R.id.key)).setText(WORDS[3]);
            ((EditText) activity.findViewById(R.id.limit)).setText(WORDS[4]);
            Button toggle = activity.findViewById(R.id.toggle);
            assertEquals("Start", toggle.getText().toString());
            shadowOf(application).clearStartedServices(); // Robolectric counts a bound one too
            toggle.performClick();
            Intent start = shadowOf(application).getNextStartedService();
            assertEquals(name, start.getComponent());
            assertEquals(WORDS[0], start.getStringExtra("mode"));
            service.get().onStartCommand(start, 0, 1);
            idle();
            assertArrayEquals(WORDS, session.started.get(0));
            session.say(Kind.LISTENING, 0, "port 5001");
            session.say(Kind.SERVING, 60, "a client");
            assertEquals("Serving a client", shown(activity, R.id.state));
            session.die();
            session.say(Kind.LISTENING, 0, "port 5001");
            assertEquals("Waiting for a client", shown(activity, R.id.state));
            assertEquals("port 5001", shown(activity, R.id.detail));
            assertEquals("Sessions: 0 served, 1 crashed, 0 hung", shown(activity, R.id.counts));
            assertTrue(shown(activity, R.id.error).contains("died while it served"));
            assertFalse(activity.findViewById(R.id.host).isEnabled());
            assertEquals("Stop", toggle.getText().toString());
            shadowOf(application).clearStartedServices();
            toggle.performClick();
            assertEquals(ServerService.STOP, shadowOf(application).getNextStartedService().getAction());
        }
    }

    @Test
    public void aWrongFieldIsMarkedAndNothingStarts() {
        bound();
        try (ActivityController<MainActivity> screen = Robolectric.buildActivity(MainActivity.class)) {
            MainActivity activity = screen.setup().get();
            EditText port = activity.findViewById(R.id.port);
            port.setText("70000");
            shadowOf(application).clearStartedServices();
            activity.findViewById(R.id.toggle).performClick();
            assertTrue(String.valueOf(port.getError()).contains("65535"));
            assertNull(shadowOf(application).getNextStartedService());
        }
    }

    @Test
    public void theManifestIsWhatAndroid14AsksFor() throws Exception {
        PackageInfo about = application.getPackageManager().getPackageInfo(
                application.getPackageName(), PackageManager.GET_PERMISSIONS | PackageManager.GET_SERVICES);
        assertEquals(
                Set.of("INTERNET", "FOREGROUND_SERVICE", "FOREGROUND_SERVICE_SPECIAL_USE", "POST_NOTIFICATIONS", "WAKE_LOCK"),
                Set.of(java.util.Arrays.stream(about.requestedPermissions)
                        .map(permission -> permission.replace("android.permission.", ""))
                        .toArray()));
        for (ServiceInfo service : about.services) {
            if (service.name.endsWith(".SessionService")) {
                assertEquals(application.getPackageName() + ":session", service.processName);
                assertFalse(service.exported);
            } else {
                assertEquals(application.getPackageName(), service.processName);
                assertEquals(Manifest.permission.DUMP, service.permission);
                assertEquals(ServiceInfo.FOREGROUND_SERVICE_TYPE_SPECIAL_USE, service.getForegroundServiceType());
            }
        }
        assertEquals(2, about.services.length);
    }

    private static String shown(MainActivity activity, int id) {
        return ((TextView) activity.findViewById(id)).getText().toString();
    }
}
