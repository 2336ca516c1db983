//! Entries of the index, written into the mapped file.

use crate::serve::Unit;

const HEADER_SIZE: usize = 40;
const SLOT_SIZE: usize = 4;
const ENTRY_SIZE: usize = 20;

/// The header's values that entries change.
pub struct IndexState {
    /// Number of the next entry.
    pub count: i64,
    pub used_slots: i64,
    pub begin_ms: i64,
    pub begin_offset: i64,
}

/// The part of `file` from `at` on with `N` bytes.
fn part<const N: usize>(file: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    file.get_mut(at..at.checked_add(N)?)?.try_into().ok()
}

/// Add an entry for each hash of `units`. None if the file is too small for them, which the caller must prevent.
pub fn put(file: &mut [u8], slot_count: u32, state: &mut IndexState, units: &[Unit], hashes: &[u32]) -> Option<()> {
    let entries = HEADER_SIZE + slot_count as usize * SLOT_SIZE;
    let mut begin = 0;
    for unit in units {
        for hash in hashes.get(begin..unit.hashes_end as usize)? {
            let slot_position = HEADER_SIZE + (hash % slot_count) as usize * SLOT_SIZE;
            let mut previous = i32::from_be_bytes(*part::<SLOT_SIZE>(file, slot_position)?);
            if previous <= 0 || i64::from(previous) >= state.count {
                previous = 0;
                state.used_slots += 1;
            }
            let entry = part::<ENTRY_SIZE>(file, entries + state.count as usize * ENTRY_SIZE)?;
            entry[..4].copy_from_slice(&hash.to_be_bytes());
            entry[4..12].copy_from_slice(&unit.physical_offset.to_be_bytes());
            entry[12..16].copy_from_slice(&seconds_since(state.begin_ms, unit.store_time_ms).to_be_bytes());
            entry[16..].copy_from_slice(&previous.to_be_bytes());
            *part::<SLOT_SIZE>(file, slot_position)? = (state.count as i32).to_be_bytes();
            if state.count == 1 {
                state.begin_ms = unit.store_time_ms;
                state.begin_offset = unit.physical_offset;
            }
            state.count += 1;
        }
        begin = unit.hashes_end as usize;
    }
    Some(())
}

/// Seconds from the file's begin time on, within 0 and the field's maximum; 0 if the file has no begin time.
fn seconds_since(begin_ms: i64, time_ms: i64) -> i32 {
    if begin_ms <= 0 {
        return 0;
    }
    time_ms.saturating_sub(begin_ms).div_euclid(1000).clamp(0, i64::from(i32::MAX)) as i32
}
