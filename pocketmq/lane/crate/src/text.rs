//! Numbers in text, and Java's hash of a string.

/// Parse a decimal number of 64 bits as every client writes it: no sign but `-`, no leading zeros, no blanks.
pub fn number(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 || (digits[0] == b'0' && text.len() > 1) {
        return None;
    }
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// Parse a number of 32 bits, as `number` does.
pub fn int32(text: &[u8]) -> Option<i32> {
    i32::try_from(number(text)?).ok()
}

/// Append a number in decimal.
pub fn push_decimal(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[start..]);
}

/// Append a number as 16 upper-case hexadecimal digits.
pub fn push_hex16(out: &mut Vec<u8>, value: i64) {
    for shift in (0..16).rev() {
        out.push(b"0123456789ABCDEF"[(value >> (4 * shift) & 15) as usize]);
    }
}

/// Continue `String.hashCode` of Java with UTF-8 text, which Java hashes by UTF-16 code units.
pub fn java_hash(mut hash: u32, text: &[u8]) -> u32 {
    if text.is_ascii() {
        let mut chunks = text.chunks_exact(4);
        for c in &mut chunks {
            hash = hash
                .wrapping_mul(31 * 31 * 31 * 31)
                .wrapping_add(u32::from(c[0]) * (31 * 31 * 31))
                .wrapping_add(u32::from(c[1]) * (31 * 31))
                .wrapping_add(u32::from(c[2]) * 31)
                .wrapping_add(u32::from(c[3]));
        }
        for byte in chunks.remainder() {
            hash = hash.wrapping_mul(31).wrapping_add(u32::from(*byte));
        }
        return hash;
    }
    for unit in String::from_utf8_lossy(text).encode_utf16() {
        hash = hash.wrapping_mul(31).wrapping_add(u32::from(unit));
    }
    hash
}

/// The hash of an index key: the absolute value of the Java hash, or 0 for the smallest integer.
pub fn key_hash(hash: u32) -> u32 {
    (hash as i32).wrapping_abs() as u32 & 0x7FFF_FFFF
}
