//! Serving the ordinary sends at the front of a read: from frames to records, units and answers.

use std::collections::{HashMap, VecDeque};

use crate::answer::{Stored, Templates};
use crate::header::{read_binary, read_json, u32_at, Head, Names};
use crate::name::Name;
use crate::properties::{Found, Rules};
use crate::record::{self, Record, FIXED_SIZE};
use crate::text::{java_hash, key_hash};

const SEND: usize = 10;
const SEND_V2: usize = 310;
/// Fields of a send, whose numbers are those of the letters of its V2 form without gaps.
const SEND_NAMES: Names = &[
    b"producerGroup",
    b"topic",
    b"defaultTopic",
    b"defaultTopicQueueNums",
    b"queueId",
    b"sysFlag",
    b"bornTimestamp",
    b"flag",
    b"properties",
    b"reconsumeTimes",
    b"unitMode",
    b"maxReconsumeTimes",
    b"batch",
    b"bname",
];
const SEND_V2_NAMES: Names = &[b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j", b"k", b"l", b"m", b"n"];
const PRODUCER_GROUP: usize = 0;
const TOPIC: usize = 1;
const DEFAULT_TOPIC: usize = 2;
const QUEUE_NUMS: usize = 3;
const QUEUE_ID: usize = 4;
const SYS_FLAG: usize = 5;
const BORN: usize = 6;
const FLAG: usize = 7;
const PROPERTIES: usize = 8;
const RECONSUME_TIMES: usize = 9;
const UNIT_MODE: usize = 10;
const MAX_RECONSUME_TIMES: usize = 11;
const BATCH: usize = 12;
const BROKER_NAME: usize = 13;

const RESPONSE: i32 = 1;
const ONEWAY: i32 = 2;
const PROPERTIES_SIZE_MAX: usize = 32767;
pub const HOST_SIZE: usize = 8;
pub const UNIT_SIZE: usize = 20;
const NO_RUN: u32 = u32::MAX;

/// Limits of the broker, in bytes.
pub struct Limits {
    pub body_size_max: usize,
    pub frame_size_max: usize,
    pub header_size_max: usize,
}

/// What serving a message needs of its topic. It is found by the name, so that with thousands of topics, whose memory is in no
/// cache of the processor, there is one place to look at.
#[derive(Clone, Copy)]
pub(crate) struct Topic {
    number: u32,
    /// Java hash of `topic#`, with which the hash of an index key begins.
    key_prefix: u32,
    /// Number of queues; without any, none of its messages is ordinary.
    queue_count: u32,
    /// Number of queues that are read.
    pub(crate) read_count: u32,
}

/// Account of one queue.
#[derive(Clone)]
struct Queue {
    /// For `runs`: its run, or NO_RUN.
    run: u32,
    /// Messages, and the bytes of their records, counted since the last `take_counts`.
    count: u32,
    size: i64,
}

const NEW_QUEUE: Queue = Queue { run: NO_RUN, count: 0, size: 0 };

/// Next offsets of queues, which the caller owns.
pub trait NextOffsets {
    /// The next offset of a queue; None if it is not known.
    fn next(&mut self, topic: usize, queue: usize) -> Option<&mut i64>;

    /// Prefetch the memory of a queue's account, which `next` reads. With thousands of queues it is in no cache of the processor.
    fn fetch_queue(&self, _topic: usize, _queue: usize) {}

    /// Prefetch the memory of a queue's next offset, whose address is in the account.
    fn fetch_number(&self, _topic: usize, _queue: usize) {}
}

/// Where the log stands, for one call.
pub struct Place<'a> {
    pub physical_offset: i64,
    /// Bytes that may be appended.
    pub room: i64,
    pub store_time_ms: i64,
    pub born_host: &'a [u8],
}

/// What queues and index need of a record.
#[derive(Clone, Copy)]
pub struct Unit {
    pub topic: u32,
    pub queue: u32,
    pub size: u32,
    pub queue_offset: i64,
    pub physical_offset: i64,
    pub tags_code: i64,
    pub store_time_ms: i64,
    /// End of its hashes in `Batch::hashes`; they begin where those of the unit before it end.
    pub hashes_end: u32,
}

/// Units of adjacent records, and the hashes of their keys.
#[derive(Default)]
pub struct Batch {
    pub units: Vec<Unit>,
    pub hashes: Vec<u32>,
}

/// The units of one queue that are dispatched together.
pub struct Run {
    pub topic: u32,
    pub queue: u32,
    pub first_offset: i64,
    pub count: u32,
    pub size: i64,
    pub end_offset: i64,
    /// End of its units in `Runs::units`; they begin where those of the run before it end.
    units_end: usize,
}

/// The units of a batch by queue.
pub struct Runs {
    /// In the order of each queue's first unit.
    pub runs: Vec<Run>,
    /// Units as a ConsumeQueue has them, 20 bytes each.
    units: Vec<u8>,
}

impl Runs {
    /// The units of run `index`.
    pub fn units(&self, index: usize) -> &[u8] {
        let begin = index.checked_sub(1).map_or(0, |before| self.runs[before].units_end);
        &self.units[begin..self.runs[index].units_end]
    }
}

/// The tags codes of units as a ConsumeQueue has them.
pub fn tags_codes(units: &[u8]) -> Vec<i64> {
    let code = |unit: &[u8]| unit[UNIT_SIZE - 8..].try_into().map_or(0, i64::from_be_bytes);
    units.chunks_exact(UNIT_SIZE).map(code).collect()
}

/// Why serving stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// All bytes are served, or the rest is not ordinary or not complete.
    Done,
    /// The next frame is of a topic that the caller has not named, and which has this name.
    UnknownTopic(Vec<u8>),
}

/// Serves sends, and keeps the units of the records until they are dispatched.
pub struct Server {
    pub(crate) limits: Limits,
    templates: Templates,
    pub(crate) rules: Rules,
    store_host: [u8; HOST_SIZE],
    pub(crate) topics: HashMap<Name, Topic>,
    /// The queues of each topic, by the topic's number.
    queues: Vec<Vec<Queue>>,
    scratch: Vec<u8>,
    pub(crate) stored_properties: Vec<u8>,
    pub records: Vec<u8>,
    pub answers: Vec<u8>,
    /// Number of all answers so far.
    pub answered: usize,
    /// Units to be dispatched: batches that are followed by a record of the Python path, and the batch to which units are added.
    sealed: VecDeque<Batch>,
    open: Batch,
    /// (topic, queue) of the queues with counts, and of those that are being taken.
    counted: Vec<(u32, u32)>,
    taken: Vec<(u32, u32)>,
}

impl Server {
    pub fn new(limits: Limits, templates: Templates, rules: Rules, store_host: [u8; HOST_SIZE]) -> Self {
        Server {
            limits,
            templates,
            rules,
            store_host,
            topics: HashMap::new(),
            queues: Vec::new(),
            scratch: Vec::new(),
            stored_properties: Vec::new(),
            records: Vec::new(),
            answers: Vec::new(),
            answered: 0,
            sealed: VecDeque::new(),
            open: Batch::default(),
            counted: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Name a topic, and return its number. Without queues none of its messages is ordinary.
    pub fn learn(&mut self, name: &[u8], queue_count: usize, read_count: usize) -> usize {
        let known = self.queues.len();
        let key_prefix = java_hash(java_hash(0, name), b"#");
        let new = Topic { number: known as u32, key_prefix, queue_count: 0, read_count: 0 };
        let topic = self.topics.entry(Name::new(name)).or_insert(new);
        (topic.queue_count, topic.read_count) = (queue_count as u32, read_count as u32);
        let number = topic.number as usize;
        if number == known {
            self.queues.push(Vec::new());
        }
        // Not shortened: units of queues that the topic no longer has may wait.
        let queues = &mut self.queues[number];
        queues.resize(queues.len().max(queue_count), NEW_QUEUE);
        number
    }

    /// Serve the ordinary sends at the front of `data`: add to `records`, `answers`, units and hashes, move `place`.
    /// Return the number of bytes served and why it stopped.
    pub fn serve(&mut self, data: &[u8], place: &mut Place, offsets: &mut impl NextOffsets) -> (usize, Stop) {
        let (mut at, mut stop) = (0, Stop::Done);
        if place.born_host.len() == HOST_SIZE {
            let mut scratch = std::mem::take(&mut self.scratch);
            while let Some(size) = self.serve_one(&data[at..], place, offsets, &mut scratch, &mut stop) {
                at += size;
            }
            self.scratch = scratch;
        }
        (at, stop)
    }

    /// Serve the frame at the front of `data` and return its size; None, without any effect, if it is not ordinary.
    fn serve_one(
        &mut self,
        data: &[u8],
        place: &mut Place,
        offsets: &mut impl NextOffsets,
        scratch: &mut Vec<u8>,
        stop: &mut Stop,
    ) -> Option<usize> {
        let frame_size = (u32_at(data, 0)? as usize).checked_add(4)?;
        let mark = u32_at(data, 4)?;
        let (serialize_type, header_size) = ((mark >> 24) as u8, (mark & 0xFF_FFFF) as usize);
        if frame_size > self.limits.frame_size_max || header_size > self.limits.header_size_max {
            return None;
        }
        let frame = data.get(..frame_size)?;
        let (header, body) = (frame.get(8..8 + header_size)?, frame.get(8 + header_size..)?);
        let head = read_send(serialize_type, header, scratch)?;
        self.put(&head, serialize_type, body, place, offsets, stop)?;
        Some(frame_size)
    }

    fn put(
        &mut self,
        head: &Head,
        serialize_type: u8,
        body: &[u8],
        place: &mut Place,
        offsets: &mut impl NextOffsets,
        stop: &mut Stop,
    ) -> Option<()> {
        let message = Message::of(head, body, self.limits.body_size_max)?;
        let topic = self.topics.get(message.topic).copied();
        let (number, queue) = (topic.map_or(0, |topic| topic.number as usize), message.queue_id as u32 as usize);
        offsets.fetch_queue(number, queue);
        let properties = self.rules.store(message.properties, &mut self.stored_properties)?;
        offsets.fetch_number(number, queue);
        let record = Record::new(message.fixed(place.born_host, &self.store_host), body, message.topic);
        let physical_offset = place.physical_offset;
        let queue_offset = self.append(&record, topic, message.queue_id, &properties, place, offsets, stop)?;
        if head.flag & ONEWAY == 0 {
            let stored = Stored { physical_offset, queue_id: message.queue_id, queue_offset };
            self.templates.push(&mut self.answers, serialize_type, head.opaque, &stored);
            self.answered += 1;
        }
        Some(())
    }

    /// Append a record with the properties in `stored_properties`, its unit and its hashes, and return its queue offset.
    /// None, without any effect, if it is not ordinary or has no room.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn append(
        &mut self,
        record: &Record,
        topic: Option<Topic>,
        queue_id: i32,
        properties: &Found,
        place: &mut Place,
        offsets: &mut impl NextOffsets,
        stop: &mut Stop,
    ) -> Option<i64> {
        let Some(topic) = topic else {
            *stop = Stop::UnknownTopic(record.topic.to_vec());
            return None;
        };
        let queue = u32::try_from(queue_id).ok().filter(|queue| *queue < topic.queue_count)?;
        // The first message of a queue is not ordinary: the broker limits how fast queues are created.
        let next_offset = offsets.next(topic.number as usize, queue as usize).filter(|next| **next > 0)?;
        let stored = &self.stored_properties;
        let size = record.size(stored.len());
        if size as i64 > place.room || stored.len() > PROPERTIES_SIZE_MAX {
            return None;
        }
        let queue_offset = *next_offset;
        *next_offset += 1;
        self.records.reserve(size);
        self.records.extend_from_slice(&record.placed(size, queue_id, queue_offset, place));
        self.records.extend_from_slice(record.body);
        self.records.push(record.topic.len() as u8);
        self.records.extend_from_slice(record.topic);
        self.records.extend_from_slice(&(stored.len() as u16).to_be_bytes());
        self.records.extend_from_slice(stored);
        let prefix = topic.key_prefix;
        if !properties.uniq_key.is_empty() {
            self.open.hashes.push(key_hash(java_hash(prefix, properties.uniq_key)));
        }
        for key in properties.keys.split(|byte| *byte == b' ').filter(|key| !key.is_empty()) {
            self.open.hashes.push(key_hash(java_hash(prefix, key)));
        }
        let tags_code = if properties.tags.is_empty() { 0 } else { i64::from(java_hash(0, properties.tags) as i32) };
        self.open.units.push(Unit {
            topic: topic.number,
            queue,
            size: size as u32,
            queue_offset,
            physical_offset: place.physical_offset,
            tags_code,
            store_time_ms: place.store_time_ms,
            hashes_end: self.open.hashes.len() as u32,
        });
        place.physical_offset += size as i64;
        place.room -= size as i64;
        Some(queue_offset)
    }

    /// The units of the first batch by queue.
    pub fn runs(&mut self) -> Runs {
        let (batch, mut runs) = (self.sealed.front().unwrap_or(&self.open), Vec::<Run>::new());
        for unit in &batch.units {
            let slot = &mut self.queues[unit.topic as usize][unit.queue as usize].run;
            if *slot == NO_RUN {
                *slot = runs.len() as u32;
                runs.push(Run {
                    topic: unit.topic,
                    queue: unit.queue,
                    first_offset: unit.queue_offset,
                    count: 0,
                    size: 0,
                    end_offset: 0,
                    units_end: 0,
                });
            }
            let run = &mut runs[*slot as usize];
            run.count += 1;
            run.size += i64::from(unit.size);
            run.end_offset = unit.physical_offset + i64::from(unit.size);
        }
        let mut end = 0;
        for run in &mut runs {
            run.units_end = end; // where its next unit goes, below
            end += run.count as usize * UNIT_SIZE;
        }
        let mut units = vec![0; end];
        for unit in &batch.units {
            let run = &mut runs[self.queues[unit.topic as usize][unit.queue as usize].run as usize];
            let place = &mut units[run.units_end..run.units_end + UNIT_SIZE];
            place[..8].copy_from_slice(&unit.physical_offset.to_be_bytes());
            place[8..12].copy_from_slice(&unit.size.to_be_bytes());
            place[12..].copy_from_slice(&unit.tags_code.to_be_bytes());
            run.units_end += UNIT_SIZE;
        }
        for run in &runs {
            self.queues[run.topic as usize][run.queue as usize].run = NO_RUN;
        }
        Runs { runs, units }
    }

    /// Count the messages of a run, which are in their queue.
    pub fn count(&mut self, run: &Run) {
        let queue = &mut self.queues[run.topic as usize][run.queue as usize];
        if queue.count == 0 {
            self.counted.push((run.topic, run.queue));
        }
        queue.count = queue.count.saturating_add(run.count);
        queue.size += run.size;
    }

    /// Take (topic, queue, messages, bytes) of at most `most` queues with counts. Queues of one topic follow each other, because
    /// the caller's rows for them are neighbours in memory.
    pub fn take_counts(&mut self, most: usize) -> Vec<(usize, usize, u32, i64)> {
        if self.taken.is_empty() {
            std::mem::swap(&mut self.counted, &mut self.taken);
            self.taken.sort_unstable_by(|one, other| other.cmp(one));
        }
        let taken = self.taken.split_off(self.taken.len().saturating_sub(most));
        let take = |(topic, queue): (u32, u32)| {
            let (topic, queue) = (topic as usize, queue as usize);
            let found = std::mem::replace(&mut self.queues[topic][queue], NEW_QUEUE);
            (topic, queue, found.count, found.size)
        };
        taken.into_iter().rev().map(take).collect()
    }

    /// The batch that is dispatched first.
    pub fn first(&self) -> &Batch {
        self.sealed.front().unwrap_or(&self.open)
    }

    /// Close the open batch: the next record of the log is not one of the lane's.
    pub fn seal(&mut self) {
        self.sealed.push_back(std::mem::take(&mut self.open));
    }

    /// Forget the first batch, which was dispatched.
    pub fn clear_first(&mut self) {
        let mut batch = self.sealed.pop_front().unwrap_or_else(|| std::mem::take(&mut self.open));
        if self.open.units.is_empty() {
            batch.units.clear();
            batch.hashes.clear();
            self.open = batch; // with the memory that it has
        }
    }
}

/// Read the header of a send of one message.
fn read_send<'a>(serialize_type: u8, header: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<Head<'a>> {
    match serialize_type {
        0 if header.starts_with(b"{\"code\":310,") => read_json(header, b"{\"code\":310,", SEND_V2_NAMES, scratch),
        0 => read_json(header, b"{\"code\":10,", SEND_NAMES, scratch),
        1 if header.starts_with(&(SEND_V2 as u16).to_be_bytes()) => read_binary(header, SEND_V2, SEND_V2_NAMES),
        1 => read_binary(header, SEND, SEND_NAMES),
        _ => None,
    }
}

/// The fields of an ordinary send.
struct Message<'a> {
    topic: &'a [u8],
    properties: &'a [u8],
    queue_id: i32,
    sys_flag: i32,
    born_ms: i64,
    flag: i32,
    reconsume_times: i32,
}

impl<'a> Message<'a> {
    fn of(head: &Head<'a>, body: &[u8], body_size_max: usize) -> Option<Self> {
        if head.flag & !ONEWAY != 0 || head.flag & RESPONSE != 0 || body.is_empty() || body.len() > body_size_max {
            return None;
        }
        for required in [PRODUCER_GROUP, DEFAULT_TOPIC] {
            head.string(required)??;
        }
        head.string(BROKER_NAME)?;
        head.int32(QUEUE_NUMS)?;
        head.int32_or(MAX_RECONSUME_TIMES, 0)?;
        head.is_false(BATCH)?;
        head.is_false(UNIT_MODE)?;
        let message = Message {
            topic: head.string(TOPIC)??,
            properties: head.string(PROPERTIES)?.unwrap_or(b""),
            queue_id: head.int32(QUEUE_ID)?,
            sys_flag: head.int32(SYS_FLAG)?,
            born_ms: head.int64(BORN)?,
            flag: head.int32(FLAG)?,
            reconsume_times: head.int32_or(RECONSUME_TIMES, 0)?,
        };
        record::is_ordinary(message.sys_flag).then_some(message)
    }

    /// The record up to its body, with what does not depend on its place.
    fn fixed(&self, born_host: &[u8], store_host: &[u8]) -> [u8; FIXED_SIZE] {
        let mut fixed = [0; FIXED_SIZE];
        record::set(&mut fixed, record::FLAG, &self.flag.to_be_bytes());
        record::set(&mut fixed, record::SYS_FLAG, &self.sys_flag.to_be_bytes());
        record::set(&mut fixed, record::BORN_TIME, &self.born_ms.to_be_bytes());
        record::set(&mut fixed, record::BORN_HOST, born_host);
        record::set(&mut fixed, record::STORE_HOST, store_host);
        record::set(&mut fixed, record::RECONSUME_TIMES, &self.reconsume_times.to_be_bytes());
        fixed // no prepared transaction
    }
}
