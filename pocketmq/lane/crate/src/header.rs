//! Headers of requests, in JSON and in the binary serialisation.
//!
//! Only the form that clients really send is read. A header of any other form (white space, escaped keys, numbers with
//! leading zeros, unknown keys in excess, ...) gives None, and the Python path decides on it.

use crate::text::{int32, number};

/// Most unknown fields that a header may have; the broker ignores them.
const UNKNOWN_MAX: usize = 8;
/// Most declared fields of a request code.
pub const FIELDS_MAX: usize = 16;

/// A value in the header, or in the scratch buffer if it had escapes.
#[derive(Clone, Copy, Default)]
struct Text {
    start: usize,
    end: usize,
    is_unescaped: bool,
    is_string: bool,
}

/// Flag, opaque and the fields of a request. `fields` are numbered as in the names that the caller passes.
pub struct Head<'a> {
    header: &'a [u8],
    scratch: &'a [u8],
    fields: [Option<Text>; FIELDS_MAX],
    pub flag: i32,
    pub opaque: i32,
}

impl<'a> Head<'a> {
    fn bytes(&self, text: Text) -> &'a [u8] {
        let source = if text.is_unescaped { self.scratch } else { self.header };
        source.get(text.start..text.end).unwrap_or(b"")
    }

    pub fn has(&self, field: usize) -> bool {
        self.fields[field].is_some()
    }

    /// The text of a field that must be a string. The outer None: it is not one; the inner None: it is absent.
    pub fn string(&self, field: usize) -> Option<Option<&'a [u8]>> {
        match self.fields[field] {
            None => Some(None),
            Some(text) => text.is_string.then(|| Some(self.bytes(text))),
        }
    }

    /// The number of a field that must be present.
    pub fn int64(&self, field: usize) -> Option<i64> {
        number(self.bytes(self.fields[field]?))
    }

    /// The number of a field that must be present.
    pub fn int32(&self, field: usize) -> Option<i32> {
        int32(self.bytes(self.fields[field]?))
    }

    /// The number of a field, or `default` if it is absent.
    pub fn int32_or(&self, field: usize, default: i32) -> Option<i32> {
        if self.has(field) {
            self.int32(field)
        } else {
            Some(default)
        }
    }

    /// Some if a flag is absent or `false`.
    pub fn is_false(&self, field: usize) -> Option<()> {
        match self.fields[field] {
            None => Some(()),
            Some(text) => (self.bytes(text) == b"false").then_some(()),
        }
    }
}

/// Names of a code's fields on the wire, by number.
pub type Names = &'static [&'static [u8]];

fn field_of(names: Names, key: &[u8]) -> Option<usize> {
    // Most names differ in size or first letter, which needs no call.
    names.iter().position(|name| name.len() == key.len() && name.first() == key.first() && *name == key)
}

struct Json<'a> {
    header: &'a [u8],
    at: usize,
}

impl Json<'_> {
    fn eat(&mut self, byte: u8) -> Option<()> {
        (*self.header.get(self.at)? == byte).then(|| self.at += 1)
    }

    /// A key, which has no escapes, up to its colon.
    fn key(&mut self) -> Option<(usize, usize)> {
        self.eat(b'"')?;
        let start = self.at;
        while !matches!(*self.header.get(self.at)?, b'"' | b'\\' | 0..=0x1F) {
            self.at += 1;
        }
        let end = self.at;
        self.eat(b'"')?;
        self.eat(b':')?;
        Some((start, end))
    }

    /// A string after its quote.
    fn string(&mut self, scratch: &mut Vec<u8>) -> Option<Text> {
        let header = self.header;
        let start = self.at;
        let mut at = start;
        while !matches!(*header.get(at)?, b'"' | b'\\' | 0..=0x1F) {
            at += 1;
        }
        if header[at] == b'"' {
            self.at = at + 1;
            return Some(Text { start, end: at, is_unescaped: false, is_string: true });
        }
        let begin = scratch.len();
        scratch.extend_from_slice(&header[start..at]);
        loop {
            match *header.get(at)? {
                b'"' => break,
                b'\\' => at = unescape(header, at + 1, scratch)?,
                0..=0x1F => return None,
                _ => {
                    let run = at;
                    while !matches!(*header.get(at)?, b'"' | b'\\' | 0..=0x1F) {
                        at += 1;
                    }
                    scratch.extend_from_slice(&header[run..at]);
                }
            }
        }
        self.at = at + 1;
        Some(Text { start: begin, end: scratch.len(), is_unescaped: true, is_string: true })
    }

    /// A string, a number, `true` or `false`.
    fn value(&mut self, scratch: &mut Vec<u8>) -> Option<Text> {
        if *self.header.get(self.at)? == b'"' {
            self.at += 1;
            return self.string(scratch);
        }
        let start = self.at;
        while matches!(*self.header.get(self.at)?, b'-' | b'0'..=b'9' | b'a'..=b'z') {
            self.at += 1;
        }
        let text = &self.header[start..self.at];
        let is_known = matches!(text, b"true" | b"false") || number(text).is_some();
        is_known.then_some(Text { start, end: self.at, is_unescaped: false, is_string: false })
    }
}

/// Append the character of an escape, whose backslash is before `at`; return the position behind it.
fn unescape(header: &[u8], at: usize, scratch: &mut Vec<u8>) -> Option<usize> {
    let byte = match *header.get(at)? {
        same @ (b'"' | b'\\' | b'/') => same,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        b'u' => {
            let (mut code, mut end) = (hex4(header, at + 1)?, at + 5);
            if code & 0xFC00 == 0xD800 {
                // The first half of a pair. A half alone is left to the Python path.
                let low = if header.get(end..end + 2)? == b"\\u" { hex4(header, end + 2)? } else { 0 };
                if low & 0xFC00 != 0xDC00 {
                    return None;
                }
                (code, end) = (0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), end + 6);
            }
            scratch.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(end);
        }
        _ => return None,
    };
    scratch.push(byte);
    Some(at + 1)
}

fn hex4(header: &[u8], at: usize) -> Option<u32> {
    let mut value = 0;
    for digit in header.get(at..at + 4)? {
        value = value << 4 | char::from(*digit).to_digit(16)?;
    }
    Some(value)
}

/// Whether `key` is new among the unknown keys, which it then joins.
fn is_new_unknown<'a>(unknown: &mut [&'a [u8]; UNKNOWN_MAX], count: &mut usize, key: &'a [u8]) -> bool {
    if *count == UNKNOWN_MAX || unknown[..*count].contains(&key) {
        return false;
    }
    unknown[*count] = key;
    *count += 1;
    true
}

/// Read a JSON header that begins with `start`, which ends with its request code and a comma.
pub fn read_json<'a>(header: &'a [u8], start: &[u8], names: Names, scratch: &'a mut Vec<u8>) -> Option<Head<'a>> {
    if !header.starts_with(start) || !(header.is_ascii() || std::str::from_utf8(header).is_ok()) {
        return None;
    }
    scratch.clear();
    let mut json = Json { header, at: start.len() - 1 };
    let (mut fields, mut flag, mut opaque, mut seen) = ([None; FIELDS_MAX], 0, 0, 0u8);
    while json.eat(b',').is_some() {
        let (from, to) = json.key()?;
        let bit = match &header[from..to] {
            b"extFields" => {
                read_fields(&mut json, names, &mut fields, scratch)?;
                1
            }
            b"language" => {
                let text = json.value(scratch)?;
                if !text.is_string || text.is_unescaped || text.end - text.start > 40 {
                    return None;
                }
                2
            }
            b"flag" => {
                flag = plain_number(&mut json, scratch)?;
                4
            }
            b"opaque" => {
                opaque = plain_number(&mut json, scratch)?;
                8
            }
            b"version" => {
                plain_number(&mut json, scratch)?;
                16
            }
            b"serializeTypeCurrentRPC" => {
                if !json.value(scratch)?.is_string {
                    return None;
                }
                32
            }
            _ => return None,
        };
        if seen & bit != 0 {
            return None;
        }
        seen |= bit;
    }
    json.eat(b'}')?;
    if json.at != header.len() || seen & 31 != 31 {
        return None;
    }
    Some(Head { header, scratch, fields, flag, opaque })
}

fn plain_number(json: &mut Json, scratch: &mut Vec<u8>) -> Option<i32> {
    let text = json.value(scratch)?;
    if text.is_string {
        return None;
    }
    int32(json.header.get(text.start..text.end)?)
}

fn read_fields(json: &mut Json, names: Names, fields: &mut [Option<Text>; FIELDS_MAX], scratch: &mut Vec<u8>) -> Option<()> {
    let header = json.header;
    let (mut unknown, mut unknown_count) = ([b"".as_slice(); UNKNOWN_MAX], 0);
    json.eat(b'{')?;
    loop {
        let (from, to) = json.key()?;
        let text = json.value(scratch)?;
        match field_of(names, &header[from..to]) {
            Some(field) if fields[field].is_none() => fields[field] = Some(text),
            Some(_) => return None,
            None if is_new_unknown(&mut unknown, &mut unknown_count, &header[from..to]) => {}
            None => return None,
        }
        if json.eat(b',').is_none() {
            return json.eat(b'}');
        }
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_be_bytes(data.get(at..at.checked_add(2)?)?.try_into().ok()?) as usize)
}

/// The unsigned number of 32 bits at a position.
pub fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Read a binary header of a request code without a remark.
pub fn read_binary<'a>(header: &'a [u8], code: usize, names: Names) -> Option<Head<'a>> {
    let ext_end = 21usize.checked_add(u32_at(header, 17)? as usize)?;
    if u16_at(header, 0)? != code || u32_at(header, 13)? != 0 || ext_end != header.len() {
        return None;
    }
    let (opaque, flag) = (u32_at(header, 5)? as i32, u32_at(header, 9)? as i32);
    let mut fields = [None; FIELDS_MAX];
    let (mut unknown, mut unknown_count, mut at) = ([b"".as_slice(); UNKNOWN_MAX], 0, 21);
    while at < ext_end {
        let key_end = at + 2 + u16_at(header, at)?;
        let key = header.get(at + 2..key_end)?;
        let start = key_end + 4;
        let end = start.checked_add(u32_at(header, key_end)? as usize)?;
        let value = header.get(start..end)?;
        if !value.is_ascii() && std::str::from_utf8(value).is_err() {
            return None;
        }
        let text = Text { start, end, is_unescaped: false, is_string: true };
        match field_of(names, key) {
            Some(field) if fields[field].is_none() => fields[field] = Some(text),
            Some(_) => return None,
            None if key.is_ascii() && is_new_unknown(&mut unknown, &mut unknown_count, key) => {}
            None => return None,
        }
        at = end;
    }
    Some(Head { header, scratch: b"", fields, flag, opaque })
}
