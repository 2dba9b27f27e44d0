package org.tvmcodl.rpc.serve;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import org.junit.Test;

public final class SettingsTest {
    private static void refused(Settings.Field field, String... words) {
        SettingsError error = assertThrows(SettingsError.class, () -> Settings.parse(words));
        assertEquals(field, error.field);
        assertFalse(error.getMessage().isEmpty());
    }

    @Test
    public void settingsTravelAsWords() throws SettingsError {
        String[] words = {"tracker", "192.168.1.7", "9190", "pixel-8_a.b", "60"};
        Settings settings = Settings.parse(words);
        assertEquals(Mode.TRACKER, settings.mode);
        assertEquals(9190, settings.port);
        assertEquals(60, settings.limitSeconds);
        assertArrayEquals(words, settings.words());
        assertEquals("tracker 192.168.1.7:9190, key pixel-8_a.b", settings.toString());
        assertEquals("listen [::1]:9190, key k", Settings.parse(new String[] {"listen", "::1", "9190", "k", "1"}).toString());
    }

    @Test
    public void blanksAroundWhatWasTypedDoNotMatter() throws SettingsError {
        assertEquals("proxy host:1, key k", Settings.of(" proxy", " host ", "1 ", " k", " 5 ").toString());
    }

    @Test
    public void whatCannotBeUsedIsRefusedWithItsField() {
        refused(Settings.Field.MODE, "pigeon", "127.0.0.1", "9090", "k", "60");
        refused(Settings.Field.MODE, "proxy");
        refused(Settings.Field.HOST, "proxy", "", "9090", "k", "60");
        refused(Settings.Field.HOST, "proxy", "a host", "9090", "k", "60");
        for (String port : new String[] {"0", "65536", "-1", "http", "", "9090.5", "99999999999"}) {
            refused(Settings.Field.PORT, "proxy", "127.0.0.1", port, "k", "60");
        }
        // A quotation mark would break the tracker's JSON, a colon or blank TVM's own keys.
        for (String key : new String[] {"", "a b", "a:b", "a\"b", "a\nb", "ключ", "x".repeat(65)}) {
            refused(Settings.Field.KEY, "proxy", "127.0.0.1", "9090", key, "60");
        }
        for (String limit : new String[] {"0", "-5", "never", "604801"}) {
            refused(Settings.Field.LIMIT, "proxy", "127.0.0.1", "9090", "k", limit);
        }
    }

    @Test
    public void aClientMayAskForLessTimeButNotForMore() {
        assertEquals(20, new Client(null, "", Client.askedSeconds("client:k -timeout=20")).limitSeconds(60));
        assertEquals(21, new Client(null, "", Client.askedSeconds("client:k -timeout=20.5")).limitSeconds(60));
        assertEquals(60, new Client(null, "", Client.askedSeconds("client:k -timeout=3600")).limitSeconds(60));
        assertEquals(60, new Client(null, "", Client.askedSeconds("client:k")).limitSeconds(60));
        assertEquals(60, new Client(null, "", Client.askedSeconds("client:k -timeout=soon")).limitSeconds(60));
        assertEquals(60, new Client(null, "", Client.askedSeconds("client:k -timeout=-3")).limitSeconds(60));
        assertEquals(60, new Client(null, "", Client.askedSeconds("client:k -timeout=NaN")).limitSeconds(60));
    }

    @Test
    public void eventsTravelAsLines() {
        for (SessionEvent.Kind kind : SessionEvent.Kind.values()) {
            SessionEvent event = SessionEvent.parse(new SessionEvent(kind, 7, "two\nlines  of text").line());
            assertEquals(kind, event.kind);
            assertEquals(7, event.limitSeconds);
            assertEquals("two lines of text", event.text);
            assertEquals("", SessionEvent.parse(new SessionEvent(kind, "").line()).text);
        }
        for (String line : new String[] {"NONSENSE 1 x", "SERVING", "SERVING soon x", "", null}) {
            assertThrows(IllegalArgumentException.class, () -> SessionEvent.parse(line));
        }
    }

    @Test
    public void everyStateCanBeLeftAndStopped() {
        for (State state : State.values()) {
            assertFalse(state.next().isEmpty());
            assertTrue(state == State.STOPPED || state.mayBecome(State.STOPPED));
        }
        assertFalse(State.STOPPED.mayBecome(State.SERVING));
        assertFalse(State.WAITING.mayBecome(State.LISTENING));
    }
}
