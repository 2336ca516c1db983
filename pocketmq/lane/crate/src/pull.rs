//! Pulls: reading their headers, and making a whole answer from units and log.

use std::collections::HashMap;
use std::time::Duration;

use crate::header::{read_json, u32_at, Head, Names};
use crate::text::push_decimal;

const START: &[u8] = b"{\"code\":11,";
const NAMES: Names = &[
    b"consumerGroup",
    b"topic",
    b"queueId",
    b"queueOffset",
    b"maxMsgNums",
    b"sysFlag",
    b"commitOffset",
    b"suspendTimeoutMillis",
    b"subVersion",
    b"subscription",
    b"expressionType",
    b"bname",
    b"maxMsgBytes",
    b"ReqT",
];
const UNIT_SIZE: usize = 20;
/// Tags code of a unit whose record is lost.
const HOLE_TAGS_CODE: i64 = i64::MAX;

/// The fields of a pull in JSON.
pub struct Pull<'a> {
    pub frame_size: usize,
    pub opaque: i32,
    pub group: &'a str,
    pub topic: &'a str,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub max_msg_nums: i32,
    pub sys_flag: i32,
    pub commit_offset: i64,
    pub suspend_timeout_ms: i64,
    pub sub_version: i64,
    pub subscription: Option<&'a str>,
    pub expression_type: Option<&'a str>,
}

/// Flags of a pull that do not decide which messages it gets: it commits an offset, and it may be held.
const COMMIT_FLAG: i32 = 1;
const SUSPEND_FLAG: i32 = 2;
/// Most bytes of records that are copied into an answer; the Python path sends more of them as views of the log.
pub const COPY_MAX: usize = 64 * 1024;

impl Pull<'_> {
    /// The consumer offset that is committed with it.
    pub fn committed(&self) -> Option<i64> {
        (self.sys_flag & COMMIT_FLAG != 0).then_some(self.commit_offset)
    }
}

/// The fields of a pull that decide whether it is permitted and which messages it gets, but for its queue.
pub struct Asker {
    /// Group and topic.
    key: (String, String),
    flags: i32,
    sub_version: i64,
    subscription: Option<String>,
    expression_type: Option<String>,
}

impl Asker {
    pub fn of(pull: &Pull) -> Self {
        Asker {
            key: (pull.group.to_owned(), pull.topic.to_owned()),
            flags: pull.sys_flag & !(COMMIT_FLAG | SUSPEND_FLAG),
            sub_version: pull.sub_version,
            subscription: pull.subscription.map(str::to_owned),
            expression_type: pull.expression_type.map(str::to_owned),
        }
    }

    pub fn is_of(&self, pull: &Pull) -> bool {
        self.key.0 == pull.group
            && self.key.1 == pull.topic
            && self.flags == pull.sys_flag & !(COMMIT_FLAG | SUSPEND_FLAG)
            && self.sub_version == pull.sub_version
            && self.subscription.as_deref() == pull.subscription
            && self.expression_type.as_deref() == pull.expression_type
    }
}

/// Messages that the pulls of one group and queue got since the last `Account::take`.
#[derive(Default)]
pub struct Progress {
    pub next_offset: i64,
    pub count: u64,
    pub size: u64,
    pub pulls: u64,
    pub took_us: u64,
}

/// The progress of one group in a topic, by queue id.
pub type Queues = HashMap<i32, Progress>;

/// The progress of all groups.
#[derive(Default)]
pub struct Account {
    topics: HashMap<(String, String), Queues>,
    /// Number of queues with progress.
    pub len: usize,
    /// Longest time that a pull took.
    pub took_max: Duration,
}

impl Account {
    /// Count the answer to a pull.
    pub fn add(&mut self, asker: &Asker, pull: &Pull, answer: &Answer, took: Duration) {
        let known = self.topics.get_mut(&asker.key);
        let queues = match known {
            Some(queues) => queues,
            None => self.topics.entry(asker.key.clone()).or_default(),
        };
        let progress = queues.entry(pull.queue_id).or_default();
        self.len += usize::from(progress.pulls == 0);
        self.took_max = self.took_max.max(took);
        progress.next_offset = answer.next_offset;
        progress.count += answer.count as u64;
        progress.size += answer.size as u64;
        progress.pulls += 1;
        progress.took_us += took.as_micros() as u64;
    }

    /// Take the progress by group and topic, and begin anew.
    pub fn take(&mut self) -> HashMap<(String, String), Queues> {
        (self.len, self.took_max) = (0, Duration::ZERO);
        std::mem::take(&mut self.topics)
    }
}

/// Read the frame at the front of `data`; None if it is not a whole pull of the usual form.
pub fn read_pull<'a>(data: &'a [u8], header_size_max: usize, scratch: &'a mut Vec<u8>) -> Option<Pull<'a>> {
    let frame_size = (u32_at(data, 0)? as usize).checked_add(4)?;
    let mark = u32_at(data, 4)?;
    let header_size = (mark & 0xFF_FFFF) as usize;
    // JSON, and no body.
    if mark >> 24 != 0 || header_size > header_size_max || frame_size != header_size + 8 {
        return None;
    }
    let head = read_json(data.get(8..frame_size)?, START, NAMES, scratch)?;
    if head.flag != 0 {
        return None;
    }
    for number in [11, 12, 13] {
        head.string(number)?;
    }
    Some(Pull {
        frame_size,
        opaque: head.opaque,
        group: text(&head, 0)??,
        topic: text(&head, 1)??,
        queue_id: head.int32(2)?,
        queue_offset: head.int64(3)?,
        max_msg_nums: head.int32(4)?,
        sys_flag: head.int32(5)?,
        commit_offset: head.int64(6)?,
        suspend_timeout_ms: head.int64(7)?,
        sub_version: head.int64(8)?,
        subscription: text(&head, 9)?,
        expression_type: text(&head, 10)?,
    })
}

fn text<'a>(head: &Head<'a>, field: usize) -> Option<Option<&'a str>> {
    match head.string(field)? {
        None => Some(None),
        Some(bytes) => std::str::from_utf8(bytes).ok().map(Some),
    }
}

/// Physical offset and size of a record.
pub type Place = (i64, u32);

/// The records of an answer.
pub struct Source<'a> {
    pub places: &'a [Place],
    /// The file of the log that has them, and the physical offset of its start.
    pub file: &'a [u8],
    pub file_start: i64,
    /// Records before this physical offset need checks or other limits, which the Python path makes.
    pub floor: i64,
}

impl<'a> Source<'a> {
    fn record(&self, place: &Place) -> Option<&'a [u8]> {
        if place.0 < self.floor {
            return None;
        }
        let start = usize::try_from(place.0.checked_sub(self.file_start)?).ok()?;
        self.file.get(start..start.checked_add(place.1 as usize)?)
    }
}

/// Find the records of `units`, as many as have `size_max` bytes, but at least one. None if a record is lost.
pub fn places_of(units: &[u8], size_max: usize, places: &mut Vec<Place>) -> Option<()> {
    let mut total = 0;
    places.clear();
    for unit in units.chunks_exact(UNIT_SIZE) {
        let (offset, size, tags_code) = (unit.first_chunk()?, u32_at(unit, 8)?, unit.last_chunk()?);
        if i64::from_be_bytes(*tags_code) == HOLE_TAGS_CODE {
            return None;
        }
        total += size as usize;
        if !places.is_empty() && total > size_max {
            break;
        }
        places.push((i64::from_be_bytes(*offset), size));
    }
    Some(())
}

/// Pieces of an answer in JSON around next begin offset, min offset, max offset and opaque.
pub type PullTemplate = [Vec<u8>; 5];

/// Queue offsets of an answer.
#[derive(Clone, Copy)]
pub struct Offsets {
    pub next: i64,
    pub min: i64,
    pub max: i64,
}

/// The answer to a pull: what comes before the records in its frame, their number and size.
pub struct Answer {
    head: Vec<u8>,
    pub next_offset: i64,
    pub count: usize,
    pub size: usize,
}

impl Answer {
    /// Size of the frame.
    pub fn frame_size(&self) -> usize {
        self.head.len() + self.size
    }

    /// The pieces of the frame: its head and the records, which are still where they were.
    pub fn pieces<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = &'a [u8]> {
        std::iter::once(&self.head[..]).chain(source.places.iter().filter_map(|place| source.record(place)))
    }
}

/// The answer with the records of `source`. None if there are none, one is not ordinary or not in the file, or they are too large
/// to be copied.
pub fn answer(source: &Source, template: &PullTemplate, opaque: i32, offsets: Offsets) -> Option<Answer> {
    let mut size = 0;
    for place in source.places {
        size += source.record(place)?.len();
        if size > COPY_MAX {
            return None;
        }
    }
    if source.places.is_empty() {
        return None;
    }
    let mut head = Vec::with_capacity(320);
    head.extend_from_slice(&[0; 8]);
    let [before_next, before_min, before_max, before_opaque, end] = template;
    for (piece, value) in [
        (before_next, offsets.next),
        (before_min, offsets.min),
        (before_max, offsets.max),
        (before_opaque, i64::from(opaque)),
    ] {
        head.extend_from_slice(piece);
        push_decimal(&mut head, value);
    }
    head.extend_from_slice(end);
    let header_size = (head.len() - 8) as u32;
    head[..4].copy_from_slice(&(4 + header_size + size as u32).to_be_bytes());
    head[4..8].copy_from_slice(&header_size.to_be_bytes());
    Some(Answer { head, next_offset: offsets.next, count: source.places.len(), size })
}
