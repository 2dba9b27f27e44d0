package org.tvmcodl.rpc;

import android.app.Service;
import android.content.Context;
import android.content.Intent;
import android.os.Binder;
import android.os.IBinder;
import android.os.PowerManager;
import android.util.Log;
import java.io.IOException;
import org.tvmcodl.rpc.serve.SessionProcess;
import org.tvmcodl.rpc.serve.Settings;
import org.tvmcodl.rpc.serve.SettingsError;
import org.tvmcodl.rpc.serve.State;
import org.tvmcodl.rpc.serve.Status;
import org.tvmcodl.rpc.serve.Supervisor;

/** The foreground service that supervises sessions.  It serves from its start until it is stopped. */
public final class ServerService extends Service implements SessionProcess.Starter, Supervisor.Watcher {
    static final String STOP = "org.tvmcodl.rpc.STOP";

    /** Extras of the intent that starts it; missing ones are as in the last start. */
    static final String[] EXTRAS = {"mode", "host", "port", "key", "limit"};

    private static final String TAG = "codl-server";

    /** For the screen, which is in the same process. */
    final class Local extends Binder {
        Status status() {
            return supervisor.status();
        }

        /** Null ends the watching. */
        void watch(Supervisor.Watcher watcher) {
            screen = watcher;
            if (watcher != null) {
                watcher.changed(supervisor.status());
            }
        }
    }

    private final Local local = new Local();
    private Supervisor supervisor;
    private ServerNotification notification;
    private PowerManager.WakeLock awake;
    private Supervisor.Watcher screen;

    /** The intent that starts it with these settings. */
    static Intent startIntent(Context context, Settings settings) {
        Intent intent = new Intent(context, ServerService.class);
        String[] words = settings.words();
        for (int i = 0; i < words.length; i++) {
            intent.putExtra(EXTRAS[i], words[i]);
        }
        return intent;
    }

    @Override
    public void onCreate() {
        super.onCreate();
        notification = new ServerNotification(this);
        PowerManager power = (PowerManager) getSystemService(Context.POWER_SERVICE);
        awake = power.newWakeLock(PowerManager.PARTIAL_WAKE_LOCK, "codl:session");
        awake.setReferenceCounted(false);
        supervisor = new Supervisor(new MainLoop(), this, this);
    }

    @Override
    public SessionProcess start(Settings settings, SessionProcess.Listener listener) throws IOException {
        return new BoundSession(this, settings, listener);
    }

    @Override
    public int onStartCommand(Intent intent, int flags, int startId) {
        // First, and for STOP too: Android ends an app that does not enter the foreground after such a start.
        boolean allowed = enterForeground();
        if (!allowed || (intent != null && STOP.equals(intent.getAction()))) {
            supervisor.stop();
            return end();
        }
        try {
            SavedSettings saved = new SavedSettings(this);
            String[] words = saved.load().words();
            for (int i = 0; intent != null && i < words.length; i++) {
                words[i] = intent.hasExtra(EXTRAS[i]) ? String.valueOf(intent.getExtras().get(EXTRAS[i])) : words[i];
            }
            Settings settings = Settings.parse(words);
            saved.save(settings);
            supervisor.start(settings);
        } catch (SettingsError error) {
            if (supervisor.status().state == State.STOPPED) {
                Log.e(TAG, "not started: " + error.getMessage());
                return end();
            }
            Log.e(TAG, "goes on as before: " + error.getMessage());
            // Not this intent again: without one it takes the saved settings.
            return START_STICKY;
        }
        // If Android ends this process, it starts it again with the same intent.
        return START_REDELIVER_INTENT;
    }

    /** False if Android 12 or later refuses it: after a restart by the system, with the app in the background. */
    private boolean enterForeground() {
        try {
            notification.startForeground(supervisor.status());
            return true;
        } catch (IllegalStateException refused) {
            Log.e(TAG, "cannot serve from the background, open the app and press Start: " + refused.getMessage());
            return false;
        }
    }

    private int end() {
        stopForeground(STOP_FOREGROUND_REMOVE);
        stopSelf();
        return START_NOT_STICKY;
    }

    @Override
    public IBinder onBind(Intent intent) {
        return local;
    }

    @Override
    public void onDestroy() {
        supervisor.stop();
        super.onDestroy();
    }

    @Override
    public void changed(Status status) {
        Log.i(TAG, status.toString());
        if (status.state == State.SERVING) {
            awake.acquire();
        } else if (awake.isHeld()) {
            awake.release();
        }
        if (status.state != State.STOPPED) {
            notification.show(status);
        }
        if (screen != null) {
            screen.changed(status);
        }
    }
}
