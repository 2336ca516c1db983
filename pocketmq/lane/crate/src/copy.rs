//! Copies of messages that waited for their time, from their records in the log.

use memchr::memmem;

use crate::header::u32_at;
use crate::properties::{Found, ENTRY_END};
use crate::record::{self, Record, BODY_SIZE, FIXED_SIZE, MAGIC, MAGIC_CODE, STORE_TIME, SYS_FLAG};
use crate::serve::{NextOffsets, Place, Server, Stop};
use crate::text::{int32, push_decimal};

/// Property names that only the Python path takes out of a copy begin or end like this.
const OWN: &[u8] = b"PMQ_";
const TIMED: &[u8] = b"QUEUE_MS\x01";
/// Bytes of copies after which no further one is made in a call.
const SIZE_MAX: usize = 1 << 20;

/// Times of a delivery, for the properties of its copy.
#[derive(Clone, Copy)]
pub struct Delivery {
    pub now_ms: i64,
    /// Precision of the timer wheel, above 0.
    pub precision_ms: i64,
}

/// A record of a message that waited.
struct Waited<'a> {
    fixed: [u8; FIXED_SIZE],
    body: &'a [u8],
    properties: &'a [u8],
    store_ms: i64,
}

impl<'a> Waited<'a> {
    /// The record at the front of `data`; None if its sizes do not fit together, or it is not ordinary.
    fn of(data: &'a [u8]) -> Option<Self> {
        let size = u32_at(data, 0)? as usize;
        let record = data.get(..size)?;
        let fixed: [u8; FIXED_SIZE] = record.get(..FIXED_SIZE)?.try_into().ok()?;
        let body_end = FIXED_SIZE.checked_add(u32_at(record, BODY_SIZE)? as usize)?;
        let topic_size = usize::from(*record.get(body_end)?);
        let properties_at = body_end + 1 + topic_size + 2;
        let properties = record.get(properties_at..)?;
        let properties_size = usize::from(u16::from_be_bytes([record[properties_at - 2], record[properties_at - 1]]));
        let is_ordinary = u32_at(record, MAGIC)? == MAGIC_CODE
            && properties.len() == properties_size
            && record::is_ordinary(u32_at(record, SYS_FLAG)? as i32);
        let store_ms = i64::from_be_bytes(fixed[STORE_TIME..STORE_TIME + 8].try_into().ok()?);
        (is_ordinary && store_ms >= 0).then_some(Waited { fixed, body: &record[FIXED_SIZE..body_end], properties, store_ms })
    }
}

impl Server {
    /// Append the copies of the records at `positions` of `file`, up to the first that is not ordinary, or many bytes; return
    /// their number.
    pub fn copy(
        &mut self,
        file: &[u8],
        positions: &[usize],
        delivery: Delivery,
        place: &mut Place,
        offsets: &mut impl NextOffsets,
    ) -> (usize, Stop) {
        let mut stop = Stop::Done;
        let mut copied = 0;
        for position in positions {
            let data = file.get(*position..).unwrap_or_default();
            if self.records.len() >= SIZE_MAX || self.copy_one(data, delivery, place, offsets, &mut stop).is_none() {
                break;
            }
            copied += 1;
        }
        (copied, stop)
    }

    fn copy_one(
        &mut self,
        data: &[u8],
        delivery: Delivery,
        place: &mut Place,
        offsets: &mut impl NextOffsets,
        stop: &mut Stop,
    ) -> Option<()> {
        let waited = Waited::of(data)?;
        let text = waited.properties;
        if waited.body.len() > self.limits.body_size_max
            || memmem::find(text, OWN).is_some()
            || memmem::find(text, TIMED).is_some()
        {
            return None;
        }
        std::str::from_utf8(text).ok()?; // otherwise two names may be one as text
        let found: Found = self.rules.look(text)?;
        let queue_id = int32(found.real_queue)?;
        let topic = self.topics.get(found.real_topic).copied();
        if topic.is_some_and(|topic| i64::from(queue_id) >= i64::from(topic.read_count)) {
            return None; // the Python path chooses another queue, as this one has no readers
        }
        self.stored_properties.clear();
        self.stored_properties.extend_from_slice(text);
        if text.last() != Some(&ENTRY_END) {
            self.stored_properties.push(ENTRY_END);
        }
        self.stored_properties.extend_from_slice(b"TIMER_ENQUEUE_MS\x01");
        push_decimal(&mut self.stored_properties, waited.store_ms - waited.store_ms.rem_euclid(delivery.precision_ms));
        self.stored_properties.extend_from_slice(b"\x02TIMER_DEQUEUE_MS\x01");
        push_decimal(&mut self.stored_properties, delivery.now_ms);
        let record = Record::new(waited.fixed, waited.body, found.real_topic);
        self.append(&record, topic, queue_id, &found, place, offsets, stop)?;
        Some(())
    }
}
