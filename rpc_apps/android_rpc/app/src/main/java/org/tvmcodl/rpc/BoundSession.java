package org.tvmcodl.rpc;

import android.app.ActivityManager;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
import android.os.Bundle;
import android.os.Handler;
import android.os.IBinder;
import android.os.Looper;
import android.os.Message;
import android.os.Messenger;
import android.os.Process;
import android.os.RemoteException;
import java.io.IOException;
import java.util.List;
import org.tvmcodl.rpc.serve.SessionEvent;
import org.tvmcodl.rpc.serve.SessionProcess;
import org.tvmcodl.rpc.serve.Settings;

/** The supervisor's side of {@link SessionService}: binding starts its process, a lost binding is its end. */
final class BoundSession implements SessionProcess {
    /** As the manifest names it, after the package. */
    private static final String PROCESS = ":session";

    private final Context context;
    private final Settings settings;
    private final Listener listener;
    private boolean over;

    private final Messenger events = new Messenger(new Handler(Looper.getMainLooper(), new Handler.Callback() {
        @Override
        public boolean handleMessage(Message message) {
            if (message.what == SessionService.EVENT && !over) {
                listener.said(eventOf(message));
            }
            return true;
        }
    }));

    private final ServiceConnection connection = new ServiceConnection() {
        @Override
        public void onServiceConnected(ComponentName name, IBinder service) {
            Message serve = Message.obtain(null, SessionService.SERVE);
            Bundle data = new Bundle();
            data.putStringArray(SessionService.WORDS, settings.words());
            serve.setData(data);
            serve.replyTo = events;
            try {
                new Messenger(service).send(serve);
            } catch (RemoteException dead) {
                end("it died as it started");
            }
        }

        @Override
        public void onServiceDisconnected(ComponentName name) {
            end("the process is gone");
        }

        /** From Android 8 on, where such a binding is not made again. */
        @Override
        public void onBindingDied(ComponentName name) {
            end("the binding to the process is dead");
        }

        /** From Android 9 on. */
        @Override
        public void onNullBinding(ComponentName name) {
            end("the process has nothing to bind to");
        }
    };

    BoundSession(Context context, Settings settings, Listener listener) throws IOException {
        this.context = context;
        this.settings = settings;
        this.listener = listener;
        Intent intent = new Intent(context, SessionService.class);
        if (!context.bindService(intent, connection, Context.BIND_AUTO_CREATE | Context.BIND_IMPORTANT)) {
            context.unbindService(connection);
            throw new IOException("Android refuses to start it");
        }
    }

    /** A client's code may have made the message: anything but an event is a failure of its session, not ours. */
    private static SessionEvent eventOf(Message message) {
        try {
            return SessionEvent.parse(message.getData().getString(SessionService.LINE));
        } catch (RuntimeException wrong) {
            return new SessionEvent(
                    SessionEvent.Kind.FAILED, "the session's process broke its protocol: " + wrong.getMessage());
        }
    }

    @Override
    public void kill() {
        if (over) {
            return;
        }
        // By its pid: a hung session does not answer.
        Context application = context.getApplicationContext();
        ActivityManager manager = (ActivityManager) application.getSystemService(Context.ACTIVITY_SERVICE);
        List<ActivityManager.RunningAppProcessInfo> own = manager.getRunningAppProcesses();
        if (own != null) {
            for (ActivityManager.RunningAppProcessInfo each : own) {
                if (each.processName.equals(context.getPackageName() + PROCESS)) {
                    Process.killProcess(each.pid);
                }
            }
        }
        end("it was ended");
    }

    /** Once.  Unbinds, or Android would start the process again by itself. */
    private void end(final String how) {
        if (over) {
            return;
        }
        over = true;
        context.unbindService(connection);
        new Handler(Looper.getMainLooper()).post(new Runnable() {
            @Override
            public void run() {
                listener.ended(how);
            }
        });
    }
}
