//! Appending the lane's units to ConsumeQueues, which belong to the Python path.
//!
//! With many queues each has a unit or two in a turn, and its memory is in no cache of the processor. So a queue is looked up
//! once, and then only its numbers and those of its file are looked at, where the Python objects have them. As long as it has a
//! tail it is in use.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

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
    start_offset: i64,
    wrote: i64,
    reserved: i64,
    address: i64,
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
    queue: Option<Box<Served>>,
}

struct Served {
    queue: Py<PyAny>,
    /// Address of its numbers.
    address: usize,
    /// Start offset and path of its last file, if that is written to without a mapping.
    unmapped: Option<(i64, String)>,
}

impl Known {
    pub fn new(key: Py<PyTuple>) -> Self {
        Known { key, queue: None }
    }
}

/// Where ConsumeQueues are: all by key, those with units that may not be synced, and the next offsets by key.
pub struct Queues<'a, 'py> {
    pub all: &'a Bound<'py, PyDict>,
    pub dirty: &'a Bound<'py, PyDict>,
    pub next_offsets: &'a Bound<'py, PyDict>,
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
            Ok(is_appended) if is_appended.is_truthy()? => {
                served.unmapped = queue.call_method0(intern!(py, "unmapped_tail"))?.extract()?;
                self.set_dirty(queue)
            }
            Ok(_) => Ok(false),
            Err(error) if error.is_instance_of::<PyOSError>(py) => Ok(false), // the dispatch of requests reports it
            Err(error) => Err(error),
        }
    }

    fn look_up<'k>(&self, known: &'k mut Known) -> PyResult<Option<&'k mut Served>> {
        let key = known.key.bind(self.all.py());
        let Some(queue) = self.all.get_item(key)? else { return Ok(None) };
        if !known.queue.as_ref().is_some_and(|served| served.queue.is(&queue)) {
            let address = queue.call_method0(intern!(queue.py(), "address"))?.extract()?;
            known.queue = Some(Box::new(Served { queue: queue.unbind(), address, unmapped: None }));
            if let Some(next) = self.next_offsets.get_item(key)? {
                // Entered again by the lane's own key: looking that up compares no texts.
                self.next_offsets.del_item(key)?;
                self.next_offsets.set_item(key, next)?;
            }
        }
        Ok(known.queue.as_deref_mut())
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
    if file.wrote < 0 || end > file.reserved {
        return None;
    }
    if file.address != 0 {
        // The file is mapped there until it forgets the address. No more bytes are reserved than it has, and only this thread
        // writes queues.
        let place = (file.address + file.wrote) as *mut u8;
        std::ptr::copy_nonoverlapping(units.as_ptr(), place, units.len());
    } else {
        let (_, path) = served.unmapped.as_ref().filter(|(start_offset, _)| *start_offset == file.start_offset)?;
        let opened = OpenOptions::new().write(true).open(path).ok()?;
        opened.write_all_at(units, file.wrote as u64).ok()?;
    }
    file.wrote = end;
    queue.max_offset += (units.len() / UNIT_SIZE) as i64;
    queue.max_physical_offset = run.end_offset;
    Some(queue.is_dirty != 0)
}

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
