//! Pulls as Python sees them: the class `Pulls` of `pocketmq.lane._lane`.

use std::time::Instant;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::pull::{
    answer, places_of, read_pull, Account, Answer, Asker, Offsets, Place, Pull, PullTemplate, Source, COPY_MAX,
};
use crate::queues::read_end;
use crate::serve::UNIT_SIZE;

/// Most units read for an answer. The records of so many are too large to be copied.
const UNITS_MAX: usize = 1024;
/// Number of queues with progress from which on it should be taken.
const PROGRESS_MAX: usize = 1024;

/// The fields of PullMessageRequestHeader up to expressionType.
type Fields<'a> = (&'a str, &'a str, i32, i64, i32, i32, i64, i64, i64, Option<&'a str>, Option<&'a str>);
/// Group, topic, queue id and offset of a commit.
type Commit = (Py<PyString>, Py<PyString>, i32, i64);
/// Group, topic and queue id; next offset; number and bytes of the messages, number of the pulls, their time in microseconds.
type Taken = ((String, String, i32), i64, (u64, u64, u64, u64));

/// Permission for pulls that ask alike.
struct Permit<'py> {
    asker: Asker,
    group: Bound<'py, PyString>,
    topic: Bound<'py, PyString>,
    /// Number of queues that they may read.
    queue_count: i32,
    /// Python's filter of the messages that they get; None: all.
    wanted: Option<Bound<'py, PyAny>>,
}

/// A file of the log.
struct LogFile {
    view: PyBuffer<u8>,
    start: i64,
    wrote: usize,
}

impl LogFile {
    fn new(file: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = file.py();
        let view = PyBuffer::get(&file.getattr(intern!(py, "view"))?)?;
        let start = file.getattr(intern!(py, "start_offset"))?.extract()?;
        Ok(LogFile { view, start, wrote: file.getattr(intern!(py, "wrote"))?.extract()? })
    }

    fn has(&self, offset: i64) -> bool {
        offset >= self.start && offset - self.start < self.wrote as i64
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer keeps the memory, and no one writes what was written before, which alone is read.
        let bytes = self.view.as_slice_ptr().map_or(&[][..], |slice| unsafe { slice.as_ref() });
        bytes.get(..self.wrote).unwrap_or(&[])
    }
}

/// Places of the messages, and limits of an answer.
struct Store<'a, 'py> {
    reader: &'a Bound<'py, PyAny>,
    queues: &'a Bound<'py, PyDict>,
    log_files: &'a Bound<'py, PyAny>,
    /// The file that had the last messages.
    file: Option<LogFile>,
    count_max: i32,
    size_max: usize,
    floor: i64,
}

/// Serves pulls.
#[pyclass]
pub struct Pulls {
    template: PullTemplate,
    header_size_max: usize,
    scratch: Vec<u8>,
    units: Vec<u8>,
    places: Vec<Place>,
    account: Account,
}

#[pymethods]
impl Pulls {
    /// `template`: pieces of an answer around next begin offset, min offset, max offset and opaque.
    #[new]
    fn new(template: PullTemplate, header_size_max: usize) -> Self {
        Pulls {
            template,
            header_size_max,
            scratch: Vec::new(),
            units: Vec::new(),
            places: Vec::new(),
            account: Account::default(),
        }
    }

    /// Answer the ordinary pulls of `data` from `start` on, at most `most`, and append the frames of the answers. Return the
    /// bytes served, the commits that came with them, and whether `take_progress` should be called.
    ///
    /// `permit(fields)` returns how many queues of the topic a pull may read, 0 if it is not ordinary, and its filter; it is
    /// asked once for pulls that ask alike. `reader.selected(queue, queue offset, count, filter)` returns the physical offsets and
    /// sizes of the messages that a filter wants and the next queue offset; or None. `queues`: (topic, queue id) -> ConsumeQueue.
    /// `log_files.file_at(physical offset)` returns a file of the log. `limits`: number and bytes of an answer's messages, and the
    /// physical offset from which on records are ordinary.
    #[allow(clippy::too_many_arguments)]
    fn serve<'py>(
        &mut self,
        data: &Bound<'py, PyBytes>,
        start: usize,
        most: usize,
        permit: &Bound<'py, PyAny>,
        reader: &Bound<'py, PyAny>,
        queues: &Bound<'py, PyDict>,
        log_files: &Bound<'py, PyAny>,
        limits: (i32, usize, i64),
        answers: &Bound<'py, PyList>,
    ) -> PyResult<(usize, Vec<Commit>, bool)> {
        let (bytes, mut at, mut commits) = (data.as_bytes().get(start..).unwrap_or(b""), 0, Vec::new());
        let (mut scratch, mut permitted) = (std::mem::take(&mut self.scratch), None::<Permit>);
        let mut store =
            Store { reader, queues, log_files, file: None, count_max: limits.0, size_max: limits.1, floor: limits.2 };
        let mut began = Instant::now();
        for _ in 0..most {
            let Some(pull) = read_pull(&bytes[at..], self.header_size_max, &mut scratch) else { break };
            if !permitted.as_ref().is_some_and(|known| known.asker.is_of(&pull)) {
                permitted = Some(asked(permit, &pull)?);
            }
            let Some(known) = permitted.as_ref().filter(|known| (0..known.queue_count).contains(&pull.queue_id)) else {
                break;
            };
            let Some(found) = self.answer(&pull, known, &mut store, answers)? else { break };
            let now = Instant::now();
            self.account.add(&known.asker, &pull, &found, now - began);
            began = now;
            if let Some(offset) = pull.committed() {
                commits.push((known.group.clone().unbind(), known.topic.clone().unbind(), pull.queue_id, offset));
            }
            at += pull.frame_size;
        }
        self.scratch = scratch;
        Ok((at, commits, self.account.len >= PROGRESS_MAX))
    }

    /// Take what the pulls since the last call got, and the longest time that one took, in seconds.
    fn take_progress(&mut self) -> (Vec<Taken>, f64) {
        let (took_max, mut taken) = (self.account.took_max, Vec::with_capacity(self.account.len));
        for ((group, topic), queues) in self.account.take() {
            taken.extend(queues.into_iter().map(|(queue_id, got)| {
                let key = (group.clone(), topic.clone(), queue_id);
                (key, got.next_offset, (got.count, got.size, got.pulls, got.took_us))
            }));
        }
        (taken, took_max.as_secs_f64())
    }
}

impl Pulls {
    /// Append the answer to a pull; None, without any effect, if it is not ordinary.
    fn answer<'py>(
        &mut self,
        pull: &Pull,
        permit: &Permit<'py>,
        store: &mut Store<'_, 'py>,
        answers: &Bound<'py, PyList>,
    ) -> PyResult<Option<Answer>> {
        let py = answers.py();
        let count = pull.max_msg_nums.max(1).min(store.count_max) as usize;
        let Some(queue) = store.queues.get_item((&permit.topic, pull.queue_id))?.filter(|_| count <= UNITS_MAX) else {
            return Ok(None);
        };
        let is_for_all = permit.wanted.is_none();
        let first = pull.queue_offset;
        let Some(mut offsets) = self.read_units(&queue, first, if is_for_all { count } else { 1 })? else { return Ok(None) };
        if places_of(&self.units, store.size_max, &mut self.places).is_none() {
            return Ok(None);
        }
        let Some((place, size)) = self.places.first().copied().filter(|place| place.0 >= store.floor) else {
            return Ok(None);
        };
        offsets.next = first + self.places.len() as i64;
        if let Some(wanted) = &permit.wanted {
            if size as usize * count > COPY_MAX {
                return Ok(None); // likely too large to be copied: the Python path would select the messages again
            }
            let found = store.reader.call_method1(intern!(py, "selected"), (queue, first, count, wanted))?;
            if found.is_none() {
                return Ok(None);
            }
            let (physical_offsets, sizes, next): (Vec<i64>, Vec<u32>, i64) = found.extract()?;
            self.places.clear();
            self.places.extend(physical_offsets.into_iter().zip(sizes));
            offsets.next = next;
        }
        if !store.file.as_ref().is_some_and(|file| file.has(place)) {
            let file = store.log_files.call_method1(intern!(py, "file_at"), (place,))?;
            store.file = if file.is_none() { None } else { Some(LogFile::new(&file)?) };
        }
        let Some(file) = &store.file else { return Ok(None) };
        let source = Source { places: &self.places, file: file.bytes(), file_start: file.start, floor: store.floor };
        let Some(found) = answer(&source, &self.template, pull.opaque, offsets) else { return Ok(None) };
        answers.append(joined(py, found.frame_size(), found.pieces(&source))?)?;
        Ok(Some(found))
    }

    /// Read units of a queue from an offset on, and return the queue's offsets; None if it has none there.
    fn read_units(&mut self, queue: &Bound<'_, PyAny>, first: i64, count: usize) -> PyResult<Option<Offsets>> {
        let py = queue.py();
        let min: i64 = queue.getattr(intern!(py, "min_offset"))?.extract()?;
        let address: usize = queue.call_method0(intern!(py, "address"))?.extract()?;
        self.units.clear();
        if first < min {
            return Ok(None);
        }
        // SAFETY: the queue at hand has its numbers at this address, and this thread has the interpreter's lock.
        if let Some(max) = unsafe { read_end(address, first, count, &mut self.units) } {
            return Ok(Some(Offsets { next: first, min, max }));
        }
        let max: i64 = queue.getattr(intern!(py, "max_offset"))?.extract()?;
        let view = PyBuffer::<u8>::get(&queue.call_method1(intern!(py, "units"), (first, count))?)?;
        // SAFETY: the buffer keeps the memory, which only this thread writes, and not meanwhile.
        self.units.extend_from_slice(view.as_slice_ptr().map_or(&[], |slice| unsafe { slice.as_ref() }));
        Ok((self.units.len() >= UNIT_SIZE).then_some(Offsets { next: first, min, max }))
    }
}

/// Ask for the permission for a pull and those that ask alike.
fn asked<'py>(permit: &Bound<'py, PyAny>, pull: &Pull) -> PyResult<Permit<'py>> {
    let py = permit.py();
    let (group, topic) = (PyString::new(py, pull.group), PyString::new(py, pull.topic));
    let fields: Fields = (
        pull.group,
        pull.topic,
        pull.queue_id,
        pull.queue_offset,
        pull.max_msg_nums,
        pull.sys_flag,
        pull.commit_offset,
        pull.suspend_timeout_ms,
        pull.sub_version,
        pull.subscription,
        pull.expression_type,
    );
    let (queue_count, wanted) = permit.call1((fields,))?.extract()?;
    Ok(Permit { asker: Asker::of(pull), group, topic, queue_count, wanted })
}

/// A bytes object of `size` bytes, made of `pieces`; it is not filled with zeros first.
fn joined<'py, 'a>(py: Python<'py>, size: usize, pieces: impl Iterator<Item = &'a [u8]>) -> PyResult<Bound<'py, PyBytes>> {
    let length = ffi::Py_ssize_t::try_from(size)?;
    let mut end = 0;
    // SAFETY: a new bytes object has room for `size` bytes, and no one else has it before it is filled.
    let made = unsafe {
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), length))?;
        let start = ffi::PyBytes_AsString(made.as_ptr()).cast::<u8>();
        for piece in pieces {
            if piece.len() > size - end {
                return Err(PyValueError::new_err("the records are larger than they were"));
            }
            std::ptr::copy_nonoverlapping(piece.as_ptr(), start.add(end), piece.len());
            end += piece.len();
        }
        made.cast_into_unchecked::<PyBytes>()
    };
    if end != size {
        return Err(PyValueError::new_err("the records are not where they were"));
    }
    Ok(made)
}
