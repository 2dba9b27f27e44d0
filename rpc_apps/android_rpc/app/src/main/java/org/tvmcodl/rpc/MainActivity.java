package org.tvmcodl.rpc;

import android.Manifest;
import android.app.Activity;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
import android.content.pm.PackageManager;
import android.os.Build;
import android.os.Bundle;
import android.os.IBinder;
import android.view.View;
import android.widget.Button;
import android.widget.EditText;
import android.widget.RadioGroup;
import android.widget.TextView;
import org.tvmcodl.rpc.serve.Mode;
import org.tvmcodl.rpc.serve.Settings;
import org.tvmcodl.rpc.serve.SettingsError;
import org.tvmcodl.rpc.serve.State;
import org.tvmcodl.rpc.serve.Status;
import org.tvmcodl.rpc.serve.Supervisor;

/** The one screen: settings, a button that starts and stops, the status and the last error. */
public final class MainActivity extends Activity implements Supervisor.Watcher, View.OnClickListener {
    /** In the order of {@link Mode}. */
    private static final int[] MODES = {R.id.mode_proxy, R.id.mode_tracker, R.id.mode_listen};

    private ServerService.Local server;
    private boolean serving;

    private final ServiceConnection connection = new ServiceConnection() {
        @Override
        public void onServiceConnected(ComponentName name, IBinder binder) {
            server = (ServerService.Local) binder;
            server.watch(MainActivity.this);
        }

        @Override
        public void onServiceDisconnected(ComponentName name) {
            server = null;
            changed(Status.stopped());
        }
    };

    @Override
    protected void onCreate(Bundle state) {
        super.onCreate(state);
        setContentView(R.layout.main);
        if (state == null) {
            fill(new SavedSettings(this).load());
        }
        findViewById(R.id.toggle).setOnClickListener(this);
        changed(Status.stopped());
    }

    @Override
    protected void onStart() {
        super.onStart();
        bindService(new Intent(this, ServerService.class), connection, Context.BIND_AUTO_CREATE);
    }

    @Override
    protected void onStop() {
        if (server != null) {
            server.watch(null);
            server = null;
        }
        unbindService(connection);
        super.onStop();
    }

    /** The button: starts or stops. */
    @Override
    public void onClick(View button) {
        if (serving) {
            startService(new Intent(this, ServerService.class).setAction(ServerService.STOP));
            return;
        }
        Settings settings;
        try {
            settings = typed();
        } catch (SettingsError error) {
            EditText field = fieldOf(error.field);
            field.setError(error.getMessage());
            field.requestFocus();
            return;
        }
        askToNotify();
        Intent start = ServerService.startIntent(this, settings);
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.O) {
            startForegroundService(start);
        } else {
            startService(start);
        }
    }

    /** Serving also works without the permission, and without the notification. */
    private void askToNotify() {
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.TIRAMISU
                && checkSelfPermission(Manifest.permission.POST_NOTIFICATIONS) != PackageManager.PERMISSION_GRANTED) {
            requestPermissions(new String[] {Manifest.permission.POST_NOTIFICATIONS}, 0);
        }
    }

    private Settings typed() throws SettingsError {
        int checked = ((RadioGroup) findViewById(R.id.mode)).getCheckedRadioButtonId();
        Mode mode = Mode.PROXY;
        for (Mode each : Mode.values()) {
            mode = MODES[each.ordinal()] == checked ? each : mode;
        }
        return Settings.of(
                mode.word(), textOf(R.id.host), textOf(R.id.port), textOf(R.id.key), textOf(R.id.limit));
    }

    private void fill(Settings settings) {
        ((RadioGroup) findViewById(R.id.mode)).check(MODES[settings.mode.ordinal()]);
        text(R.id.host).setText(settings.host);
        text(R.id.port).setText(String.valueOf(settings.port));
        text(R.id.key).setText(settings.key);
        text(R.id.limit).setText(String.valueOf(settings.limitSeconds));
    }

    private EditText fieldOf(Settings.Field field) {
        switch (field) {
            case PORT:
                return findViewById(R.id.port);
            case KEY:
                return findViewById(R.id.key);
            case LIMIT:
                return findViewById(R.id.limit);
            default:
                return findViewById(R.id.host);
        }
    }

    private TextView text(int id) {
        return (TextView) findViewById(id);
    }

    private String textOf(int id) {
        return text(id).getText().toString();
    }

    @Override
    public void changed(Status status) {
        serving = status.state != State.STOPPED;
        ((Button) findViewById(R.id.toggle)).setText(serving ? R.string.stop : R.string.start);
        text(R.id.state).setText(getResources().getStringArray(R.array.states)[status.state.ordinal()]);
        text(R.id.detail).setText(status.detail);
        text(R.id.counts).setText(getString(R.string.counts, status.served, status.crashed, status.hung));
        text(R.id.error).setText(
                status.lastError.isEmpty() ? getString(R.string.no_error) : getString(R.string.last_error, status.lastError));
        for (int id : new int[] {R.id.host, R.id.port, R.id.key, R.id.limit, R.id.mode_proxy, R.id.mode_tracker,
            R.id.mode_listen}) {
            findViewById(id).setEnabled(!serving);
        }
    }
}
