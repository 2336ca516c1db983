package org.pocketmq.junit5;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * One request of RocketMQ's remoting protocol, on a connection of its own. A frame is its length, the length of its header,
 * the header in JSON, and the body.
 */
final class Remoting {
    private static final int TIMEOUT_MS = 30_000;
    private static final int HEADER_LENGTH_MAX = 1 << 20;
    private static final Pattern CODE = Pattern.compile("\"code\"\\s*:\\s*(\\d+)");

    private Remoting() {
    }

    /** Sends a request, and returns the header of the answer. Throws IllegalStateException for a refusal. */
    static String call(String address, int code, Map<String, String> fields) {
        int colon = address.lastIndexOf(':');
        try (Socket socket = new Socket()) {
            socket.setSoTimeout(TIMEOUT_MS);
            socket.connect(new InetSocketAddress(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1))),
                TIMEOUT_MS);
            send(socket, code, fields);
            String header = receive(socket);
            Matcher answered = CODE.matcher(header);
            if (!answered.find() || !answered.group(1).equals("0")) {
                throw new IllegalStateException("the broker refused request " + code + ": " + field(header, "remark"));
            }
            return header;
        } catch (IOException failure) {
            throw new IllegalStateException("the broker at " + address + " did not answer request " + code, failure);
        }
    }

    /** Returns a text field of a header; empty if it is missing. */
    static String field(String header, String name) {
        Matcher matcher = Pattern.compile("\"" + name + "\"\\s*:\\s*\"((?:[^\"\\\\]|\\\\.)*)\"").matcher(header);
        return matcher.find() ? matcher.group(1).replaceAll("\\\\(.)", "$1") : "";
    }

    private static void send(Socket socket, int code, Map<String, String> fields) throws IOException {
        String pairs = fields.entrySet().stream()
            .map(field -> quoted(field.getKey()) + ":" + quoted(field.getValue()))
            .collect(Collectors.joining(","));
        byte[] header = ("{\"code\":" + code + ",\"flag\":0,\"language\":\"JAVA\",\"opaque\":1,\"version\":399,"
            + "\"serializeTypeCurrentRPC\":\"JSON\",\"extFields\":{" + pairs + "}}").getBytes(StandardCharsets.UTF_8);
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        out.writeInt(4 + header.length);
        out.writeInt(header.length);
        out.write(header);
        out.flush();
    }

    private static String receive(Socket socket) throws IOException {
        DataInputStream in = new DataInputStream(socket.getInputStream());
        in.readInt();
        int length = in.readInt() & 0xFFFFFF; // the first byte is the kind of the header: 0 for JSON
        if (length > HEADER_LENGTH_MAX) {
            throw new IOException("a header of " + length + " bytes");
        }
        byte[] header = new byte[length];
        in.readFully(header);
        return new String(header, StandardCharsets.UTF_8);
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                quoted.append('\\').append(letter);
            } else if (letter < ' ') {
                quoted.append(String.format("\\u%04x", (int) letter));
            } else {
                quoted.append(letter);
            }
        }
        return quoted.append('"').toString();
    }
}
