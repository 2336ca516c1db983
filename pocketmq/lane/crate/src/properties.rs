//! The property string of a message: which are ordinary, and what is stored of them.

use std::collections::HashSet;

use memchr::memchr;

const NAME_END: u8 = 1;
pub const ENTRY_END: u8 = 2;
/// Most properties of an ordinary message; each is compared with those before it.
const COUNT_MAX: usize = 32;
/// Longest property string of an ordinary message: longer ones may have many keys, which the Python path indexes in slices.
const SIZE_MAX: usize = 8192;

/// Names of properties that a message may have to be ordinary.
///
/// RocketMQ's own names have no lower-case letters, or begin with an underscore: of these only allowed ones are ordinary,
/// so that a new one with a meaning for the broker never is. All other names are those of users.
pub struct Rules {
    /// Those of a send.
    sent: HashSet<Vec<u8>>,
    /// Those of the record of a message that waited for its time.
    waited: HashSet<Vec<u8>>,
    /// The entry that the broker adds at the end of those of a send.
    added: Vec<u8>,
}

/// Of the properties, the texts that queues and index use; empty if absent.
#[derive(Default)]
pub struct Found<'a> {
    pub tags: &'a [u8],
    pub keys: &'a [u8],
    pub uniq_key: &'a [u8],
    /// Where a message that waited belongs.
    pub real_topic: &'a [u8],
    pub real_queue: &'a [u8],
}

impl<'a> Found<'a> {
    fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"TAGS" => self.tags = value,
            b"KEYS" => self.keys = value,
            b"UNIQ_KEY" => self.uniq_key = value,
            b"REAL_TOPIC" => self.real_topic = value,
            b"REAL_QID" => self.real_queue = value,
            _ => {}
        }
    }
}

/// One property.
struct Entry<'a> {
    name: &'a [u8],
    value: &'a [u8],
    text: &'a [u8],
    is_first: bool,
    has_end: bool,
}

impl Rules {
    /// `sent`, `waited`: RocketMQ's own names that are ordinary in sends and in records of messages that waited.
    pub fn new(sent: Vec<Vec<u8>>, waited: Vec<Vec<u8>>, added: Vec<u8>) -> Self {
        Rules { sent: sent.into_iter().collect(), waited: waited.into_iter().collect(), added }
    }

    /// Write the stored form of `text` to `stored`: without WAIT, with the broker's entry. None if it is not ordinary.
    pub fn store<'a>(&self, text: &'a [u8], stored: &mut Vec<u8>) -> Option<Found<'a>> {
        stored.clear();
        let mut found = Found::default();
        walk(text, &self.sent, |entry| {
            if entry.name == b"WAIT" {
                return (entry.value == b"true" && !entry.is_first && entry.has_end).then_some(());
            }
            found.note(entry.name, entry.value);
            stored.extend_from_slice(entry.text);
            stored.push(ENTRY_END);
            Some(())
        })?;
        stored.extend_from_slice(&self.added);
        Some(found)
    }

    /// Look at the properties of a message that waited for its time, whose copy has them, too. None if they are not ordinary.
    pub fn look<'a>(&self, text: &'a [u8]) -> Option<Found<'a>> {
        let mut found = Found::default();
        walk(text, &self.waited, |entry| {
            found.note(entry.name, entry.value);
            Some(())
        })?;
        Some(found)
    }
}

/// Call `each` for each property. None if `each` returns it, or if one is not whole, occurs twice or is not ordinary.
fn walk<'a>(text: &'a [u8], allowed: &HashSet<Vec<u8>>, mut each: impl FnMut(&Entry<'a>) -> Option<()>) -> Option<()> {
    if text.len() > SIZE_MAX || memchr(0, text).is_some() {
        return None;
    }
    let (mut names, mut count) = ([b"".as_slice(); COUNT_MAX], 0);
    let mut rest = text;
    while !rest.is_empty() {
        let entry_end = memchr(ENTRY_END, rest);
        let text = &rest[..entry_end.unwrap_or(rest.len())];
        rest = entry_end.map_or(b"".as_slice(), |end| &rest[end + 1..]);
        let name_end = memchr(NAME_END, text)?;
        let (name, value) = (&text[..name_end], &text[name_end + 1..]);
        let is_whole = !name.is_empty() && !value.is_empty() && memchr(NAME_END, value).is_none();
        if !is_whole || count == COUNT_MAX || names[..count].contains(&name) || !is_ordinary(name, allowed) {
            return None;
        }
        each(&Entry { name, value, text, is_first: count == 0, has_end: entry_end.is_some() })?;
        names[count] = name;
        count += 1;
    }
    Some(())
}

fn is_ordinary(name: &[u8], allowed: &HashSet<Vec<u8>>) -> bool {
    let is_of_user = name.first() != Some(&b'_') && name.iter().any(u8::is_ascii_lowercase);
    is_of_user || allowed.contains(name)
}
