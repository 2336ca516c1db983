//! Adding the lane's hashes to an IndexFile, which belongs to the Python path.

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;

use crate::index::{self, IndexState};
use crate::serve::Batch;

/// `IndexEnds` of Python: numbers of an index file.
#[repr(C)]
struct IndexEnds {
    begin_ms: i64,
    end_ms: i64,
    begin_offset: i64,
    end_offset: i64,
    used_slots: i64,
    count: i64,
    slot_count: i64,
    count_max: i64,
    reserved_count: i64,
    size: i64,
    address: i64,
    is_dirty: i64,
}

/// An index file with the address of its numbers.
pub struct IndexFile {
    file: Py<PyAny>,
    address: usize,
}

impl IndexFile {
    pub fn new(file: &Bound<'_, PyAny>) -> PyResult<Self> {
        let address = file.call_method0(intern!(file.py(), "address"))?.extract()?;
        Ok(IndexFile { file: file.clone().unbind(), address })
    }

    pub fn is(&self, file: &Bound<'_, PyAny>) -> bool {
        self.file.is(file)
    }

    #[allow(clippy::mut_from_ref)]
    fn ends(&self, _: Python<'_>) -> &mut IndexEnds {
        // SAFETY: the object at hand has its numbers at this address, and this thread has the interpreter's lock. Nothing
        // else refers to them: each caller lets go of the numbers before it calls Python.
        unsafe { &mut *(self.address as *mut IndexEnds) }
    }

    /// Whether `count` more entries fit.
    pub fn has_room(&self, py: Python<'_>, count: usize) -> bool {
        let ends = self.ends(py);
        ends.address != 0 && ends.count + count as i64 <= ends.count_max
    }

    /// Add the hashes of a batch, for which there is room. False if the disk has no space for them.
    pub fn put(&self, py: Python<'_>, batch: &Batch) -> PyResult<bool> {
        let Batch { units, hashes } = batch;
        let (end, reserved) = (self.ends(py).count + hashes.len() as i64, self.ends(py).reserved_count);
        if end > reserved {
            match self.file.call_method1(py, intern!(py, "reserve"), (end,)) {
                Ok(_) => (),
                Err(error) if error.is_instance_of::<PyOSError>(py) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let first = units.partition_point(|unit| (unit.hashes_end as usize) < hashes.len());
        let (ends, Some(last)) = (self.ends(py), units.get(first)) else { return Ok(true) };
        // SAFETY: the file is mapped there until it forgets the address, and only the thread that has the interpreter's lock
        // in this call writes it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(ends.address as *mut u8, ends.size as usize) };
        let mut state = IndexState {
            count: ends.count,
            used_slots: ends.used_slots,
            begin_ms: ends.begin_ms,
            begin_offset: ends.begin_offset,
        };
        if index::put(bytes, ends.slot_count as u32, &mut state, units, hashes).is_none() {
            return Ok(false);
        }
        (ends.count, ends.used_slots) = (state.count, state.used_slots);
        (ends.begin_ms, ends.begin_offset) = (state.begin_ms, state.begin_offset);
        (ends.end_ms, ends.end_offset) = (last.store_time_ms, last.physical_offset);
        ends.is_dirty = 1;
        let times = [ends.begin_ms, ends.end_ms, ends.begin_offset, ends.end_offset];
        for (place, value) in bytes.chunks_exact_mut(8).zip(times) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        for (place, value) in bytes[32..].chunks_exact_mut(4).zip([ends.used_slots, ends.count]) {
            place.copy_from_slice(&(value as i32).to_be_bytes());
        }
        Ok(true)
    }
}
