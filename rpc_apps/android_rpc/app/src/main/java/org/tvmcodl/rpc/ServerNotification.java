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

/** What a foreground service has to show: its state, the last error, and a button that stops it. */
final class ServerNotification {
    static final int ID = 1;
    private static final String CHANNEL = "serving";

    private final Service service;

    ServerNotification(Service service) {
        this.service = service;
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.O) {
            String name = service.getString(R.string.channel);
            // Low: it makes no sound each time that a session begins.
            manager().createNotificationChannel(
                    new NotificationChannel(CHANNEL, name, NotificationManager.IMPORTANCE_LOW));
        }
    }

    void startForeground(Status status) {
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.UPSIDE_DOWN_CAKE) {
            service.startForeground(ID, made(status), ServiceInfo.FOREGROUND_SERVICE_TYPE_SPECIAL_USE);
        } else {
            service.startForeground(ID, made(status));
        }
    }

    void show(Status status) {
        manager().notify(ID, made(status));
    }

    @SuppressWarnings("deprecation") // the constructor and the action that Android 7 knows
    private Notification made(Status status) {
        Notification.Builder builder = Build.VERSION.SDK_INT >= Build.VERSION_CODES.O
                ? new Notification.Builder(service, CHANNEL)
                : new Notification.Builder(service);
        Intent open = new Intent(service, MainActivity.class);
        Intent stop = new Intent(service, ServerService.class).setAction(ServerService.STOP);
        int flags = PendingIntent.FLAG_IMMUTABLE | PendingIntent.FLAG_UPDATE_CURRENT;
        return builder.setSmallIcon(R.drawable.serving)
                .setContentTitle(StateWords.of(service, status.state))
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
