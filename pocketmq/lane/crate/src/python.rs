//! The lane as Python sees it: the module `pocketmq.lane._lane`.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::answer::Templates;
use crate::copy::Delivery;
use crate::index_file::IndexFile;
use crate::properties::Rules;
use crate::queues::{fetch, is_watched, prefetch, Known, Queues, Watched};
use crate::serve::{tags_codes, Limits, NextOffsets, Place, Server, Stop, Unit, HOST_SIZE};

/// Next offsets in the cells of the log's end.
pub struct Cells<'a, 'py> {
    cells: &'a Bound<'py, PyDict>,
    queues: &'a mut [Vec<Known>],
}

impl NextOffsets for Cells<'_, '_> {
    fn next(&mut self, topic: usize, queue: usize) -> Option<&mut i64> {
        self.queues.get_mut(topic)?.get_mut(queue)?.next_offset(self.cells)
    }

    fn fetch_queue(&self, topic: usize, queue: usize) {
        if let Some(known) = self.queues.get(topic).and_then(|queues| queues.get(queue)) {
            prefetch(std::ptr::from_ref(known).cast());
        }
    }

    fn fetch_number(&self, topic: usize, queue: usize) {
        if let Some(known) = self.queues.get(topic).and_then(|queues| queues.get(queue)) {
            known.fetch_next();
        }
    }
}

/// Bytes used or records copied, physical offset of the log's new end, name of an unknown topic.
type Served = (usize, i64, Option<String>);
/// Key of the queue, its new max offset, tags codes, bytes of the records.
type PyArrival = (Py<PyTuple>, i64, Vec<i64>, i64);

#[pyclass]
pub struct Lane {
    server: Server,
    /// The queues of each topic, by the topic's number.
    queues: Vec<Vec<Known>>,
    cells: Py<PyDict>,
    /// The index file that had the last hashes.
    index: Option<IndexFile>,
}

impl Lane {
    /// The server, and the offsets with which it serves.
    pub fn parts<'a, 'py>(&'a mut self, cells: &'a Bound<'py, PyDict>) -> (&'a mut Server, Cells<'a, 'py>) {
        (&mut self.server, Cells { cells, queues: &mut self.queues })
    }

    pub fn cells(&self) -> &Py<PyDict> {
        &self.cells
    }
}

#[pymethods]
impl Lane {
    /// `cells`: (topic, queue id) -> `NextOffset`, shared with the log's end. `properties`: names of RocketMQ's own properties
    /// that an ordinary message may have, when it is sent and when it has waited. `added`: the entry added to all properties of
    /// a send. `sizes`: maxima of body, frame and header. `json`, `binary`: the templates of an answer (`answer::Templates`).
    #[new]
    fn new(
        cells: Py<PyDict>,
        store_host: &[u8],
        properties: (Vec<Vec<u8>>, Vec<Vec<u8>>),
        added: Vec<u8>,
        sizes: (usize, usize, usize),
        json: [Vec<u8>; 5],
        binary: (Vec<u8>, Vec<u8>),
    ) -> PyResult<Self> {
        let host: [u8; HOST_SIZE] = store_host
            .try_into()
            .map_err(|_| PyValueError::new_err("the store host must be an IPv4 address with its port"))?;
        let templates = Templates {
            json,
            binary_start: binary.0,
            binary_end: binary.1,
            store_host: store_host.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect(),
        };
        let limits = Limits { body_size_max: sizes.0, frame_size_max: sizes.1, header_size_max: sizes.2 };
        let server = Server::new(limits, templates, Rules::new(properties.0, properties.1, added), host);
        Ok(Lane { server, queues: Vec::new(), cells, index: None })
    }

    /// Name a topic with the keys (topic, queue id) of its queues, of which `read_count` are read; without keys none of its
    /// messages is ordinary.
    fn learn(&mut self, topic: &str, keys: Vec<Py<PyTuple>>, read_count: usize) {
        let number = self.server.learn(topic.as_bytes(), keys.len(), read_count);
        if number == self.queues.len() {
            self.queues.push(Vec::new());
        }
        // Queues that the topic no longer has are kept, as their units may wait.
        let known = &mut self.queues[number];
        known.extend(keys.into_iter().skip(known.len()).map(Known::new));
    }

    /// Serve the ordinary sends of `data` from `start` on, whose records are appended at `offset` if `room` suffices. Append the
    /// bytes of the records and of the answers to the lists. The last number is that of the answers.
    #[allow(clippy::too_many_arguments)]
    fn serve(
        &mut self,
        data: &Bound<'_, PyBytes>,
        start: usize,
        born_host: &Bound<'_, PyBytes>,
        offset: i64,
        room: i64,
        store_time_ms: i64,
        records: &Bound<'_, PyList>,
        answers: &Bound<'_, PyList>,
    ) -> PyResult<(usize, i64, Option<String>, usize)> {
        let (py, answered) = (data.py(), self.server.answered);
        let mut place = Place { physical_offset: offset, room, store_time_ms, born_host: born_host.as_bytes() };
        self.server.records.clear();
        self.server.answers.clear();
        let mut offsets = Cells { cells: self.cells.bind(py), queues: &mut self.queues };
        let (used, stop) = self.server.serve(data.as_bytes().get(start..).unwrap_or(b""), &mut place, &mut offsets);
        if used > 0 {
            records.append(PyBytes::new(py, &self.server.records))?;
        }
        if !self.server.answers.is_empty() {
            answers.append(PyBytes::new(py, &self.server.answers))?;
        }
        Ok((used, place.physical_offset, unknown(stop), self.server.answered - answered))
    }

    /// Append the copies of due messages, whose records are at `positions` of a `file` of the log, up to the first that is not
    /// ordinary. `delivery`: the time, and the precision of the timer wheel, in ms. The rest as `serve`, with the number of
    /// copies.
    #[allow(clippy::too_many_arguments)]
    fn copy(
        &mut self,
        file: &Bound<'_, PyAny>,
        positions: Vec<usize>,
        delivery: (i64, i64),
        offset: i64,
        room: i64,
        store_time_ms: i64,
        records: &Bound<'_, PyList>,
    ) -> PyResult<Served> {
        let py = file.py();
        let file = PyBuffer::<u8>::get(file)?;
        let Some(bytes) = file.as_slice_ptr() else { return Err(PyValueError::new_err("the file must be contiguous")) };
        let mut place = Place { physical_offset: offset, room, store_time_ms, born_host: b"" };
        let delivery = Delivery { now_ms: delivery.0, precision_ms: delivery.1.max(1) };
        self.server.records.clear();
        let mut offsets = Cells { cells: self.cells.bind(py), queues: &mut self.queues };
        // SAFETY: the buffer keeps the memory, and nothing writes it while this thread has the interpreter's lock: the log is
        // written by this thread alone, in calls that do not overlap with this one.
        let bytes = unsafe { bytes.as_ref() };
        let (copied, stop) = self.server.copy(bytes, &positions, delivery, &mut place, &mut offsets);
        if copied > 0 {
            records.append(PyBytes::new(py, &self.server.records))?;
        }
        Ok((copied, place.physical_offset, unknown(stop)))
    }

    /// Append the units of the first batch to their queues in `all`, add those to `dirty`, and add the hashes to `index`.
    /// Return whether that is done, number and bytes of the messages appended, and the arrivals at the queues that are
    /// `watched`.
    fn append(
        &mut self,
        py: Python<'_>,
        all: &Bound<'_, PyDict>,
        dirty: &Bound<'_, PyDict>,
        watched: Watched<'_>,
        index: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(bool, u64, i64, Vec<PyArrival>)> {
        let (mut count, mut size, mut arrivals) = (0, 0, Vec::new());
        if let Some(file) = &index {
            if !self.index.as_ref().is_some_and(|known| known.is(file)) {
                self.index = Some(IndexFile::new(file)?);
            }
            if !self.index.as_ref().is_some_and(|known| known.has_room(py, self.server.first().hashes.len())) {
                return Ok((false, count, size, arrivals));
            }
        }
        let found = self.server.runs();
        let queues = Queues { all, dirty };
        fetch(found.runs.iter().map(|run| &self.queues[run.topic as usize][run.queue as usize]));
        for (index, run) in found.runs.iter().enumerate() {
            let (known, units) = (&mut self.queues[run.topic as usize][run.queue as usize], found.units(index));
            if !queues.append(known, run, units)? {
                return Ok((false, count, size, arrivals));
            }
            self.server.count(run);
            count += u64::from(run.count);
            size += run.size;
            if is_watched(&watched, known.key.bind(py))? {
                let max_offset = run.first_offset + i64::from(run.count);
                arrivals.push((known.key.clone_ref(py), max_offset, tags_codes(units), run.size));
            }
        }
        let is_indexed = match &self.index {
            Some(file) if index.is_some() && self.has_keys() => file.put(py, self.server.first())?,
            _ => true,
        };
        Ok((is_indexed, count, size, arrivals))
    }

    /// Take the counts of messages appended since the last call: (queue, number, bytes of the records) of at most `most`
    /// queues.
    fn take_counts(&mut self, py: Python<'_>, most: usize) -> Vec<(Py<PyTuple>, u32, i64)> {
        let taken = self.server.take_counts(most);
        let key = |topic: usize, queue: usize| self.queues[topic][queue].key.clone_ref(py);
        taken.into_iter().map(|(topic, queue, count, size)| (key(topic, queue), count, size)).collect()
    }

    /// (physical offset, size, store time in ms) of the last record of the first batch.
    #[getter]
    fn last(&self) -> Option<(i64, u32, i64)> {
        self.server.first().units.last().map(|unit| (unit.physical_offset, unit.size, unit.store_time_ms))
    }

    /// Whether a record of the first batch has keys for the index.
    #[getter]
    fn has_keys(&self) -> bool {
        !self.server.first().hashes.is_empty()
    }

    /// Physical offsets of the records of the first batch.
    fn physical_offsets(&self) -> Vec<i64> {
        self.server.first().units.iter().map(|unit: &Unit| unit.physical_offset).collect()
    }

    /// End the batch to which units are added: a record of the Python path follows.
    fn seal(&mut self) {
        self.server.seal();
    }

    /// Forget the first batch.
    fn clear(&mut self) {
        self.server.clear_first();
    }
}

/// The name of the topic that the caller has not named.
fn unknown(stop: Stop) -> Option<String> {
    match stop {
        Stop::Done => None,
        Stop::UnknownTopic(name) => String::from_utf8(name).ok(),
    }
}

/// Number of this interface (`pocketmq.lane.INTERFACE`).
const INTERFACE: u32 = 13;

#[pymodule]
fn _lane(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<Lane>()?;
    #[cfg(target_os = "linux")]
    module.add_class::<crate::python_sockets::Sockets>()?;
    module.add_class::<crate::python_pulls::Pulls>()
}
