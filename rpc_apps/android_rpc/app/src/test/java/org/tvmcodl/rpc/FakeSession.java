package org.tvmcodl.rpc;

import static org.robolectric.Shadows.shadowOf;

import android.app.ActivityManager;
import android.app.Application;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
import android.os.Bundle;
import android.os.Handler;
import android.os.Looper;
import android.os.Message;
import android.os.Messenger;
import android.os.RemoteException;
import java.util.ArrayList;
import java.util.List;
import org.robolectric.shadows.ShadowApplication;
import org.tvmcodl.rpc.serve.SessionEvent;

/** In the place of the process ":session": takes the service's messages, and says and does what the test wants. */
final class FakeSession {
    static final int PID = 4711;

    /** The settings of each session that was started. */
    final List<String[]> started = new ArrayList<>();

    private final Application application;
    private final ComponentName name;
    private Messenger supervisor;

    FakeSession(Application application) {
        this.application = application;
        Intent intent = new Intent(application, SessionService.class);
        name = intent.getComponent();
        Messenger messenger = new Messenger(new Handler(Looper.getMainLooper(), message -> {
            started.add(message.getData().getStringArray(SessionService.WORDS));
            supervisor = message.replyTo;
            return true;
        }));
        shadowOf(application).setComponentNameAndServiceForBindServiceForIntent(intent, name, messenger.getBinder());
        ActivityManager.RunningAppProcessInfo process =
                new ActivityManager.RunningAppProcessInfo(application.getPackageName() + ":session", PID, null);
        ActivityManager manager = (ActivityManager) application.getSystemService(Context.ACTIVITY_SERVICE);
        shadowOf(manager).setProcesses(new ArrayList<>(List.of(process)));
    }

    void say(SessionEvent.Kind kind, int limitSeconds, String text) {
        say(new SessionEvent(kind, limitSeconds, text).line());
    }

    /** Any line, or none at all: code that a client sent can say what it likes. */
    void say(String line) {
        Message message = Message.obtain(null, SessionService.EVENT);
        Bundle data = new Bundle();
        data.putString(SessionService.LINE, line);
        message.setData(data);
        try {
            supervisor.send(message);
        } catch (RemoteException error) {
            throw new AssertionError(error);
        }
        shadowOf(Looper.getMainLooper()).idle();
    }

    /** As Android reports that the process is gone. */
    void die() {
        latest().onServiceDisconnected(name);
        shadowOf(Looper.getMainLooper()).idle();
    }

    /** As Android reports that the binding will not come back. */
    void loseBinding() {
        latest().onBindingDied(name);
        shadowOf(Looper.getMainLooper()).idle();
    }

    /** As Android reports that there is nothing to bind to. */
    void refuseBinding() {
        latest().onNullBinding(name);
        shadowOf(Looper.getMainLooper()).idle();
    }

    private ServiceConnection latest() {
        ShadowApplication shadow = shadowOf(application);
        ServiceConnection latest = null;
        for (ServiceConnection each : shadow.getBoundServiceConnections()) {
            if (!shadow.getUnboundServiceConnections().contains(each) && each.getClass().getName().contains("BoundSession")) {
                latest = each;
            }
        }
        return latest;
    }
}
