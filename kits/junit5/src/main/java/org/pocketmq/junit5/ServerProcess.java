package org.pocketmq.junit5;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The program {@code pocketmq} as a child process: it is found, started, watched until it is ready, and ended. */
final class ServerProcess {
    /** The program to run, if it is not on the PATH. */
    private static final String PROGRAM = "POCKETMQ";
    /** Asks the server to end with this process: on Linux the kernel kills it when the thread that started it ends. */
    private static final String PARENT = "POCKETMQ_PARENT";
    private static final long READY_MAX_S = 120;
    private static final long STOP_MAX_S = 30;
    private static final int LINES_KEPT = 200;
    /** The server prints this line last. */
    private static final String END_OF_READY_LINES = "Try: ";
    private static final Map<String, Pattern> READY_LINES = Map.of(
        "namesrv", Pattern.compile("The Name Server boot success\\. address=(\\S+)"),
        "broker", Pattern.compile("The broker\\[.*\\] boot success\\. address=(\\S+).*"),
        "grpc", Pattern.compile("gRPC: (\\S+)"),
        "metrics", Pattern.compile("Metrics: ([^\\s,]+).*"));

    private final List<String> command;
    private final Map<String, String> found = new ConcurrentHashMap<>();
    private final Deque<String> lines = new ArrayDeque<>();
    private final CountDownLatch isSettled = new CountDownLatch(1);
    private volatile boolean isReady;
    private volatile Process process;
    private volatile IOException failure;

    private ServerProcess(List<String> command) {
        this.command = command;
    }

    /** Starts the program and waits until it is ready. */
    static ServerProcess start(List<String> arguments) {
        List<String> command = new ArrayList<>(program());
        command.addAll(arguments);
        ServerProcess started = new ServerProcess(command);
        // This thread lives as long as the server, because the server is killed when it ends.
        Thread thread = new Thread(started::run, "pocketmq");
        thread.setDaemon(true);
        thread.start();
        started.awaitReady();
        Runtime.getRuntime().addShutdownHook(new Thread(started::kill, "pocketmq-end"));
        return started;
    }

    private static List<String> program() {
        String given = System.getenv(PROGRAM);
        if (given != null && !given.isEmpty()) {
            return List.of(given);
        }
        String path = System.getenv("PATH");
        for (String folder : (path == null ? "" : path).split(File.pathSeparator)) {
            File file = new File(folder, "pocketmq");
            if (file.isFile() && file.canExecute()) {
                return List.of(file.getPath());
            }
        }
        return List.of("python3", "-m", "pocketmq");
    }

    /** Returns what a ready line said; empty if it was not printed. */
    String found(String what) {
        return found.getOrDefault(what, "");
    }

    String output() {
        synchronized (lines) {
            return String.join("\n", lines);
        }
    }

    /** Asks the server to stop, and kills it if it does not in time. */
    void stop() {
        process.destroy();
        try {
            if (!process.waitFor(STOP_MAX_S, TimeUnit.SECONDS)) {
                kill();
            }
        } catch (InterruptedException interrupted) {
            kill();
            Thread.currentThread().interrupt();
        }
    }

    private void kill() {
        if (process != null) {
            process.destroyForcibly();
        }
    }

    private void run() {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().put(PARENT, Long.toString(ProcessHandle.current().pid()));
        try {
            process = builder.start();
            process.getOutputStream().close();
            BufferedReader reader = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                read(line);
            }
        } catch (IOException error) {
            failure = error;
        } finally {
            isSettled.countDown();
        }
        try {
            if (process != null) {
                process.waitFor();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void read(String line) {
        synchronized (lines) {
            lines.add(line);
            if (lines.size() > LINES_KEPT) {
                lines.remove();
            }
        }
        if (line.startsWith(END_OF_READY_LINES)) {
            isReady = true;
            isSettled.countDown();
        }
        READY_LINES.forEach((what, pattern) -> {
            Matcher matcher = pattern.matcher(line);
            if (matcher.matches()) {
                found.putIfAbsent(what, matcher.group(1));
            }
        });
    }

    private void awaitReady() {
        String shown = String.join(" ", command);
        boolean isInTime;
        try {
            isInTime = isSettled.await(READY_MAX_S, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            kill();
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while waiting for " + shown, interrupted);
        }
        if (isReady) {
            return;
        }
        kill();
        if (failure != null && process == null) {
            throw new IllegalStateException("cannot run " + shown + ": install PocketMQ, or set " + PROGRAM
                + " to its program `pocketmq`", failure);
        }
        throw new IllegalStateException(shown + (isInTime ? " ended" : " was not ready within " + READY_MAX_S + " s")
            + "; it printed:\n" + output());
    }
}
