//! Appending the lane's units to ConsumeQueues, which belong to the Python path.
//!
//! With many queues each has a unit or two in a turn, and its memory is in no cache of the processor. So a queue is looked up
//! once, and then only its numbers and those of its file are looked at, where the Python objects have them. As long as it has a
//! last file it is in use. `fetch` looks at the queues of all runs at once, for the processor then waits for many of them at a
//! time.

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::serve::{Run, UNIT_SIZE};

/// Dicts with the queues, and dicts with the topics, whose arrivals are wanted; None: all.
pub type Watched<'py> = Option<(Vec<Bound<'py, PyDict>>, Vec<Bound<'py, PyDict>>)>;

/// `FileEnds` of Python: numbers of a mapped file.
#[repr(C)]
struct FileEnds {
    wrote: i64,
    reserved: i64,
    address: i64,
    address_start: i64,
    address_end: i64,
}

/// `QueueEnds` of Python: numbers of a queue.
#[repr(C)]
struct QueueEnds {
    max_offset: i64,
    max_physical_offset: i64,
    tail_address: i64,
    is_dirty: i64,
}

/// A queue that the lane serves: its key, and the ConsumeQueue that it had last.
pub struct Known {
    pub key: Py<PyTuple>,
    queue: Option<Served>,
    /// Its `NextOffset` of Python, and the address of that one's number.
    next: Option<(Py<PyAny>, usize)>,
}

struct Served {
    queue: Py<PyAny>,
    /// Address of its numbers.
    address: usize,
}

impl Known {
    pub fn new(key: Py<PyTuple>) -> Self {
        Known { key, queue: None, next: None }
    }

    /// Prefetch the memory of the next offset.
    pub fn fetch_next(&self) {
        if let Some((_, address)) = &self.next {
            prefetch(*address as *const i8);
        }
    }

    /// The next offset at the log's end, in its cell, which is looked up in `cells` as long as the one at hand does not count.
    pub fn next_offset(&mut self, cells: &Bound<'_, PyDict>) -> Option<&mut i64> {
        // SAFETY: a cell has its number at this address as long as the object is at hand, and this thread has the
        // interpreter's lock.
        let number = |address: usize| unsafe { &mut *(address as *mut i64) };
        if let Some((_, address)) = &self.next {
            if *number(*address) >= 0 {
                return Some(number(*address));
            }
        }
        let cell = cells.get_item(self.key.bind(cells.py())).ok()??;
        let address = cell.call_method0(intern!(cell.py(), "address")).ok()?.extract().ok()?;
        self.next = Some((cell.unbind(), address));
        Some(number(address))
    }
}

/// Where ConsumeQueues are: all by key, and those with units that may not be synced.
pub struct Queues<'a, 'py> {
    pub all: &'a Bound<'py, PyDict>,
    pub dirty: &'a Bound<'py, PyDict>,
}

impl<'py> Queues<'_, 'py> {
    /// Append the `units` of a run to its queue, which is dirty then. False if they must be dispatched as requests: the queue
    /// does not exist, does not end where the run begins, or cannot be written.
    pub fn append(&self, known: &mut Known, run: &Run, units: &[u8]) -> PyResult<bool> {
        let py = self.all.py();
        if let Some(served) = &known.queue {
            // SAFETY: the object at hand has its numbers at this address, and this thread has the interpreter's lock.
            if let Some(is_dirty) = unsafe { write(served, run, units) } {
                return if is_dirty { Ok(true) } else { self.set_dirty(served.queue.bind(py)) };
            }
        }
        let Some(served) = self.look_up(known)? else { return Ok(false) };
        let queue = served.queue.bind(py);
        let arguments = (run.first_offset, PyBytes::new(py, units), run.end_offset);
        match queue.call_method1(intern!(py, "append_packed"), arguments) {
            Ok(is_appended) if is_appended.is_truthy()? => self.set_dirty(queue),
            Ok(_) => Ok(false),
            Err(error) if error.is_instance_of::<PyOSError>(py) => Ok(false), // the dispatch of requests reports it
            Err(error) => Err(error),
        }
    }

    fn look_up<'k>(&self, known: &'k mut Known) -> PyResult<Option<&'k Served>> {
        let key = known.key.bind(self.all.py());
        let Some(queue) = self.all.get_item(key)? else { return Ok(None) };
        if !known.queue.as_ref().is_some_and(|served| served.queue.is(&queue)) {
            let address = queue.call_method0(intern!(queue.py(), "address"))?.extract()?;
            known.queue = Some(Served { queue: queue.unbind(), address });
        }
        Ok(known.queue.as_ref())
    }

    fn set_dirty(&self, queue: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.dirty.set_item(queue, queue.py().None())?;
        queue.setattr(intern!(queue.py(), "is_dirty"), 1)?;
        Ok(true)
    }
}

/// Write the `units` of a run at the end of a queue, if it has a tail with enough reserved space that can be written here, and
/// return whether the queue was dirty before. None, without any effect, if it has not.
///
/// # Safety
///
/// The address must be that of the numbers of a ConsumeQueue, and the caller must have the interpreter's lock.
unsafe fn write(served: &Served, run: &Run, units: &[u8]) -> Option<bool> {
    let queue = &mut *(served.address as *mut QueueEnds);
    if queue.tail_address == 0 || queue.max_offset != run.first_offset {
        return None;
    }
    // The queue keeps the file, and forgets this address first.
    let file = &mut *(queue.tail_address as *mut FileEnds);
    let end = file.wrote + units.len() as i64;
    if file.address == 0 || file.wrote < 0 || end > file.reserved || end > file.address_end {
        return None;
    }
    // Its mapping or its tail is there until it forgets the address, and only this thread appends to queues.
    let place = (file.address + file.wrote) as *mut u8;
    std::ptr::copy_nonoverlapping(units.as_ptr(), place, units.len());
    file.wrote = end;
    queue.max_offset += (units.len() / UNIT_SIZE) as i64;
    queue.max_physical_offset = run.end_offset;
    Some(queue.is_dirty != 0)
}

/// Copy up to `count` units of a queue from queue offset `first` on, if they are at its end, where units are appended.
/// Return its max offset; None, without any effect, if they are not there.
///
/// # Safety
///
/// The address must be that of the numbers of a ConsumeQueue, and the caller must have the interpreter's lock.
pub unsafe fn read_end(address: usize, first: i64, count: usize, into: &mut Vec<u8>) -> Option<i64> {
    let queue = &*(address as *const QueueEnds);
    if queue.tail_address == 0 {
        return None;
    }
    // The queue keeps the file, and forgets this address first.
    let file = &*(queue.tail_address as *const FileEnds);
    let unit_size = UNIT_SIZE as i64;
    // The file is the queue's last one and ends with its last unit.
    let start = file.wrote.checked_sub(queue.max_offset.checked_sub(first)?.checked_mul(unit_size)?)?;
    if file.address == 0 || start < file.address_start || start >= file.wrote {
        return None;
    }
    let size = usize::try_from(file.wrote - start).ok()?.min(count * UNIT_SIZE);
    // What is written is there until the file forgets the address.
    into.extend_from_slice(std::slice::from_raw_parts((file.address + start) as *const u8, size));
    Some(queue.max_offset)
}

/// Have the memory brought to which the units of these queues will be written: their numbers, those of their files, and the
/// places in the files. Nothing depends on it.
pub fn fetch<'a>(known: impl Iterator<Item = &'a Known>) {
    let addresses: Vec<usize> = known.filter_map(|known| known.queue.as_ref()).map(|served| served.address).collect();
    // SAFETY: a queue that is known has its numbers at its address, and a file that is its last one has them at the queue's
    // tail address; this thread has the interpreter's lock.
    let files = addresses.into_iter().map(|address| unsafe { (*(address as *const QueueEnds)).tail_address });
    let files: Vec<i64> = files.filter(|address| *address != 0).collect();
    for address in files {
        let file = unsafe { &*(address as *const FileEnds) };
        prefetch((file.address + file.wrote) as *const i8);
    }
}

#[cfg(target_arch = "x86_64")]
pub fn prefetch(place: *const i8) {
    use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
    // SAFETY: the instruction is part of x86-64, and has no effect for an address without memory.
    unsafe { _mm_prefetch(place, _MM_HINT_T0) };
}

#[cfg(not(target_arch = "x86_64"))]
pub fn prefetch(_place: *const i8) {}

/// Whether the arrivals at a queue are wanted.
pub fn is_watched(watched: &Watched<'_>, key: &Bound<'_, PyTuple>) -> PyResult<bool> {
    let Some((queues, topics)) = watched else { return Ok(true) };
    for queues in queues.iter().filter(|queues| !queues.is_empty()) {
        if queues.contains(key)? {
            return Ok(true);
        }
    }
    for topics in topics.iter().filter(|topics| !topics.is_empty()) {
        if topics.contains(key.get_item(0)?)? {
            return Ok(true);
        }
    }
    Ok(false)
}
