package pocketmq.spark.columns;

/** Check whether bytes are exactly one JSON value (RFC 8259), without building it. */
final class Json {
    /** Deeper nested values do not count as JSON: most parsers refuse them. */
    private static final int DEPTH_MAX = 500;

    private final byte[] text;
    private int at;

    private Json(byte[] text) {
        this.text = text;
    }

    /** Returns whether UTF-8 bytes are one JSON value with optional white space around it. */
    static boolean isValue(byte[] text) {
        Json json = new Json(text);
        return json.document() && json.at == text.length;
    }

    private boolean document() {
        boolean[] isObject = new boolean[DEPTH_MAX];
        int depth = 0;
        while (true) {
            // A value is expected here.
            space();
            int code = peek();
            if (code == '{' || code == '[') {
                at++;
                space();
                if (depth == DEPTH_MAX) {
                    return false;
                }
                isObject[depth++] = code == '{';
                if (peek() != (code == '{' ? '}' : ']')) {
                    if (code == '{' && !name()) {
                        return false;
                    }
                    continue;
                }
                at++;
                depth--;
            } else if (!scalar(code)) {
                return false;
            }
            // A value ends here.
            while (true) {
                space();
                if (depth == 0) {
                    return true;
                }
                int next = peek();
                at++;
                if (next == ',') {
                    space();
                    if (isObject[depth - 1] && !name()) {
                        return false;
                    }
                    break;
                }
                if (next != (isObject[depth - 1] ? '}' : ']')) {
                    return false;
                }
                depth--;
            }
        }
    }

    private boolean name() {
        if (peek() != '"' || !string()) {
            return false;
        }
        space();
        return take(':');
    }

    private boolean scalar(int code) {
        return switch (code) {
            case '"' -> string();
            case 't' -> word("true");
            case 'f' -> word("false");
            case 'n' -> word("null");
            default -> number();
        };
    }

    private boolean string() {
        at++;
        while (at < text.length) {
            int code = text[at++] & 0xff;
            if (code == '"') {
                return true;
            }
            if (code < 0x20 || (code == '\\' && !escape())) {
                return false;
            }
        }
        return false;
    }

    private boolean escape() {
        if (at == text.length) {
            return false;
        }
        int code = text[at++];
        if (code != 'u') {
            return "\"\\/bfnrt".indexOf(code) >= 0;
        }
        int unit = unit();
        if (unit < 0xD800 || unit > 0xDFFF) {
            return unit >= 0;
        }
        // A surrogate must be the first of two.
        if (unit > 0xDBFF || !take('\\') || !take('u')) {
            return false;
        }
        int second = unit();
        return second >= 0xDC00 && second <= 0xDFFF;
    }

    /** Returns the number of four hexadecimal digits, -1 if they are not there. */
    private int unit() {
        int unit = 0;
        for (int number = 0; number < 4; number++) {
            int digit = at < text.length ? Character.digit(text[at++], 16) : -1;
            if (digit < 0) {
                return -1;
            }
            unit = 16 * unit + digit;
        }
        return unit;
    }

    private boolean number() {
        take('-');
        if (!take('0') && digits() == 0) {
            return false;
        }
        if (take('.') && digits() == 0) {
            return false;
        }
        if (take('e') || take('E')) {
            if (!take('+')) {
                take('-');
            }
            return digits() > 0;
        }
        return true;
    }

    private int digits() {
        int begin = at;
        while (at < text.length && text[at] >= '0' && text[at] <= '9') {
            at++;
        }
        return at - begin;
    }

    private boolean word(String word) {
        for (int number = 0; number < word.length(); number++) {
            if (!take(word.charAt(number))) {
                return false;
            }
        }
        return true;
    }

    private void space() {
        while (at < text.length && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) {
            at++;
        }
    }

    private boolean take(int code) {
        if (peek() != code) {
            return false;
        }
        at++;
        return true;
    }

    private int peek() {
        return at < text.length ? text[at] : -1;
    }
}
