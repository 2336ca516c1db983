//! The fixed part of a record, and where its fields are.

use crate::serve::Place;

pub const FIXED_SIZE: usize = 88;
pub const MAGIC_CODE: u32 = 0xDAA3_20A7;
pub const MAGIC: usize = 4;
const BODY_CRC: usize = 8;
const QUEUE_ID: usize = 12;
pub const FLAG: usize = 16;
const QUEUE_OFFSET: usize = 20;
const PHYSICAL_OFFSET: usize = 28;
pub const SYS_FLAG: usize = 36;
pub const BORN_TIME: usize = 40;
pub const BORN_HOST: usize = 48;
pub const STORE_TIME: usize = 56;
pub const STORE_HOST: usize = 64;
pub const RECONSUME_TIMES: usize = 72;
pub const BODY_SIZE: usize = 84;
/// Bits of sysFlag with a meaning for the store: transactions, IPv6 hosts, 5.x's batches.
const SYS_FLAG_NOT_ORDINARY: i32 = 0xFC;

/// A record to be appended, without its properties.
pub struct Record<'a> {
    /// What comes before the body; `placed` fills in what depends on its place.
    fixed: [u8; FIXED_SIZE],
    pub body: &'a [u8],
    /// At most 127 bytes.
    pub topic: &'a [u8],
}

impl<'a> Record<'a> {
    /// `fixed`: what comes before the body, but for its size and its CRC.
    pub fn new(mut fixed: [u8; FIXED_SIZE], body: &'a [u8], topic: &'a [u8]) -> Self {
        set(&mut fixed, MAGIC, &MAGIC_CODE.to_be_bytes());
        set(&mut fixed, BODY_CRC, &(crc32fast::hash(body) & 0x7FFF_FFFF).to_be_bytes());
        set(&mut fixed, BODY_SIZE, &(body.len() as u32).to_be_bytes());
        Record { fixed, body, topic }
    }

    pub fn size(&self, properties_size: usize) -> usize {
        FIXED_SIZE + self.body.len() + 1 + self.topic.len() + 2 + properties_size
    }

    /// The record up to its body, at a place of the log and of its queue.
    pub fn placed(&self, size: usize, queue_id: i32, queue_offset: i64, place: &Place) -> [u8; FIXED_SIZE] {
        let mut fixed = self.fixed;
        set(&mut fixed, 0, &(size as u32).to_be_bytes());
        set(&mut fixed, QUEUE_ID, &queue_id.to_be_bytes());
        set(&mut fixed, QUEUE_OFFSET, &queue_offset.to_be_bytes());
        set(&mut fixed, PHYSICAL_OFFSET, &place.physical_offset.to_be_bytes());
        set(&mut fixed, STORE_TIME, &place.store_time_ms.to_be_bytes());
        fixed
    }
}

/// Whether sysFlag has no meaning for the store.
pub fn is_ordinary(sys_flag: i32) -> bool {
    sys_flag >= 0 && sys_flag & SYS_FLAG_NOT_ORDINARY == 0
}

/// Set the bytes of a field.
pub fn set(fixed: &mut [u8; FIXED_SIZE], at: usize, bytes: &[u8]) {
    fixed[at..at + bytes.len()].copy_from_slice(bytes);
}
