//! The property string of a message: which are ordinary, and what is stored of them.

use std::collections::HashSet;

use memchr::memchr;

const NAME_END: u8 = 1;
const ENTRY_END: u8 = 2;
/// Most properties of an ordinary message; each is compared with those before it.
const COUNT_MAX: usize = 32;
/// Longest property string of an ordinary message: longer ones may have many keys, which the Python path indexes in slices.
const SIZE_MAX: usize = 8192;

/// Names of properties that a message may have to be ordinary.
///
/// RocketMQ's own names have no lower-case letters, or begin with an underscore: of these only `allowed` ones are ordinary,
/// so that a new one with a meaning for the broker never is. All other names are those of users.
pub struct Rules {
    allowed: HashSet<Vec<u8>>,
    /// The entry that the broker adds at the end.
    added: Vec<u8>,
}

/// Of the properties, the texts that queues and index use; empty if absent.
#[derive(Default)]
pub struct Found<'a> {
    pub tags: &'a [u8],
    pub keys: &'a [u8],
    pub uniq_key: &'a [u8],
}

impl Rules {
    pub fn new(allowed: impl IntoIterator<Item = Vec<u8>>, added: Vec<u8>) -> Self {
        Rules { allowed: allowed.into_iter().collect(), added }
    }

    fn is_ordinary(&self, name: &[u8]) -> bool {
        let is_of_user = name.first() != Some(&b'_') && name.iter().any(u8::is_ascii_lowercase);
        is_of_user || self.allowed.contains(name)
    }

    /// Write the stored form of `text` to `stored`: without WAIT, with the broker's entry. None if it is not ordinary.
    pub fn store<'a>(&self, text: &'a [u8], stored: &mut Vec<u8>) -> Option<Found<'a>> {
        stored.clear();
        let mut found = Found::default();
        if text.len() > SIZE_MAX || memchr(0, text).is_some() {
            return None;
        }
        let (mut names, mut count) = ([b"".as_slice(); COUNT_MAX], 0);
        let mut rest = text;
        while !rest.is_empty() {
            let entry_end = memchr(ENTRY_END, rest);
            let entry = &rest[..entry_end.unwrap_or(rest.len())];
            rest = entry_end.map_or(b"".as_slice(), |end| &rest[end + 1..]);
            let name_end = memchr(NAME_END, entry)?;
            let (name, value) = (&entry[..name_end], &entry[name_end + 1..]);
            let is_whole = !name.is_empty() && !value.is_empty() && memchr(NAME_END, value).is_none();
            if !is_whole || count == COUNT_MAX || names[..count].contains(&name) || !self.is_ordinary(name) {
                return None;
            }
            match name {
                b"TAGS" => found.tags = value,
                b"KEYS" => found.keys = value,
                b"UNIQ_KEY" => found.uniq_key = value,
                b"WAIT" if value == b"true" && count > 0 && entry_end.is_some() => {
                    names[count] = name;
                    count += 1;
                    continue;
                }
                b"WAIT" => return None,
                _ => {}
            }
            names[count] = name;
            count += 1;
            stored.extend_from_slice(entry);
            stored.push(ENTRY_END);
        }
        stored.extend_from_slice(&self.added);
        Some(found)
    }
}
