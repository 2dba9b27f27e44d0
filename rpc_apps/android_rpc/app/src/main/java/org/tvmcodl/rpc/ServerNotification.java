package org.tvmcodl.rpc;

import android.app.Notification;
import android.app.NotificationChannel;
import android.app.NotificationManager;
import android.app.PendingIntent;
import android.app.Service;
import android.content.Context;
import android.content.Intent;
import android.content.pm.ServiceInfo;
import android.os.Build;
import org.tvmcodl.rpc.serve.Status;

/** The foreground service's notification: its state, the last error, and a button that stops it. */
final class ServerNotification {
    static final int ID = 1;
    private static final String CHANNEL = "serving";

    private final Service service;

    ServerNotification(Service service) {
        this.service = service;
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.O) {
            String name = service.getString(R.string.channel);
            // Low: no sound at each session's start.
            manager().createNotificationChannel(
                    new NotificationChannel(CHANNEL, name, NotificationManager.IMPORTANCE_LOW));
        }
    }

    void startForeground(Status status) {
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.UPSIDE_DOWN_CAKE) {
            service.startForeground(ID, build(status), ServiceInfo.FOREGROUND_SERVICE_TYPE_SPECIAL_USE);
        } else {
            service.startForeground(ID, build(status));
        }
    }

    void show(Status status) {
        manager().notify(ID, build(status));
    }

    @SuppressWarnings("deprecation") // for Android 7
    private Notification build(Status status) {
        Notification.Builder builder = Build.VERSION.SDK_INT >= Build.VERSION_CODES.O
                ? new Notification.Builder(service, CHANNEL)
                : new Notification.Builder(service);
        Intent open = new Intent(service, MainActivity.class);
        Intent stop = new Intent(service, ServerService.class).setAction(ServerService.STOP);
        int flags = PendingIntent.FLAG_IMMUTABLE | PendingIntent.FLAG_UPDATE_CURRENT;
        return builder.setSmallIcon(R.drawable.serving)
                .setContentTitle(service.getResources().getStringArray(R.array.states)[status.state.ordinal()])
                .setContentText(status.lastError.isEmpty() ? status.detail : status.lastError)
                .setContentIntent(PendingIntent.getActivity(service, 0, open, flags))
                .addAction(new Notification.Action.Builder(
                                R.drawable.serving,
                                service.getString(R.string.stop),
                                PendingIntent.getService(service, 1, stop, flags))
                        .build())
                .setOngoing(true)
                .setOnlyAlertOnce(true)
                .build();
    }

    private NotificationManager manager() {
        return (NotificationManager) service.getSystemService(Context.NOTIFICATION_SERVICE);
    }
}
