//! The sockets as Python sees them: the class `Sockets` of `pocketmq.lane._lane`.

use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::python::{Cells, Lane};
use crate::serve::{Place, Server};
use crate::sockets::{self, Found, Token};

/// Pause before few ready sockets of many busy ones are served. The kernel adds some 50 microseconds to it.
const GATHER: Duration = Duration::from_micros(50);

/// Data of Python that waits to be sent.
struct View(PyBuffer<u8>);

impl View {
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = PyBuffer::get(data)?;
        match view.as_slice_ptr() {
            Some(_) => Ok(View(view)),
            None => Err(PyTypeError::new_err("data to be sent must be contiguous")),
        }
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the buffer keeps the memory; it is bytes, or a part of a file that was written before and does not change.
        self.0.as_slice_ptr().map_or(&[], |slice| unsafe { slice.as_ref() })
    }
}

/// The lane for one call.
struct Serving<'a, 'py> {
    server: &'a mut Server,
    offsets: Cells<'a, 'py>,
    offset: i64,
    room: i64,
    store_time_ms: i64,
    write_beyond: i64,
    /// When the requests that are read have waited too long.
    late: Option<Instant>,
}

impl sockets::Lane for Serving<'_, '_> {
    fn serve(&mut self, data: &[u8], host: &[u8], answers: &mut Vec<u8>) -> usize {
        if self.late.is_some_and(|late| Instant::now() > late) {
            return 0;
        }
        let mut place =
            Place { physical_offset: self.offset, room: self.room, store_time_ms: self.store_time_ms, born_host: host };
        std::mem::swap(&mut self.server.answers, answers);
        let (used, _) = self.server.serve(data, &mut place, &mut self.offsets);
        std::mem::swap(&mut self.server.answers, answers);
        (self.offset, self.room) = (place.physical_offset, place.room);
        used
    }

    fn is_full(&self) -> bool {
        self.offset > self.write_beyond
    }
}

/// Stands for the lane while it may serve nothing.
struct Nothing;

impl sockets::Lane for Nothing {
    fn serve(&mut self, _: &[u8], _: &[u8], _: &mut Vec<u8>) -> usize {
        0
    }

    fn is_full(&self) -> bool {
        false
    }
}

/// Token; bytes, b"" at their end, None (large answers), or a number as `write` returns it; bytes of the lane's answers to this
/// read, and since the last time that the socket was found.
type PyFound<'py> = (Token, Option<Bound<'py, PyAny>>, usize, usize);

/// Sockets of clients, whose ordinary sends are served without Python.
#[pyclass]
pub struct Sockets {
    sockets: sockets::Sockets<View>,
}

fn failed(error: i32) -> PyErr {
    PyOSError::new_err((error, std::io::Error::from_raw_os_error(error).to_string()))
}

/// The number of unsent bytes, or an error's number below zero.
fn number(unsent: Result<usize, i32>) -> i64 {
    unsent.map_or_else(|error| -i64::from(error), |unsent| unsent as i64)
}

impl Sockets {
    fn found<'py>(&self, py: Python<'py>, found: Option<(Token, Found, usize, usize)>) -> PyResult<Option<PyFound<'py>>> {
        let Some((token, found, answered, answered_before)) = found else { return Ok(None) };
        let value = match found {
            Found::Data(range) => Some(PyBytes::new(py, &self.sockets.received()[range]).into_any()),
            Found::End => Some(PyBytes::new(py, b"").into_any()),
            Found::Large => None,
            Found::Unsent(size) => Some(number(Ok(size)).into_pyobject(py)?.into_any()),
            Found::Lost(error) => Some(number(Err(error)).into_pyobject(py)?.into_any()),
        };
        Ok(Some((token, value, answered, answered_before)))
    }
}

#[pymethods]
impl Sockets {
    /// `large_size`: bytes of answers to one read with which `serve` stops.
    #[new]
    fn new(large_size: usize) -> PyResult<Self> {
        Ok(Sockets { sockets: sockets::Sockets::new(large_size).map_err(failed)? })
    }

    /// The descriptor that is readable while a socket is ready.
    fn fileno(&self) -> i32 {
        self.sockets.descriptor()
    }

    /// Add the descriptor of a connected socket, which remains the caller's; return its token.
    fn add(&mut self, descriptor: i32) -> PyResult<Token> {
        self.sockets.add(descriptor).map_err(failed)
    }

    /// Read a socket from now on. `host`: the peer's address in records.
    fn start(&mut self, token: Token, host: &[u8]) -> PyResult<()> {
        self.sockets.start(token, host).map_err(failed)
    }

    /// Forget a socket, before it is closed; return the time of its last read if `note_reads` did not.
    fn remove(&mut self, token: Token) -> Option<f64> {
        self.sockets.remove(token)
    }

    /// Let the lane see the bytes of a socket first, or not.
    fn set_direct(&mut self, token: Token, is_direct: bool) {
        self.sockets.set_direct(token, is_direct);
    }

    /// Read a socket, or stop reading it.
    fn read(&mut self, token: Token, is_reading: bool) -> PyResult<()> {
        self.sockets.read(token, is_reading).map_err(failed)
    }

    /// Find the sockets that are ready, at `now_s`, after a short pause if many more are likely to be ready then.
    fn wait(&mut self, py: Python<'_>, now_s: f64) {
        if self.sockets.wait(now_s) {
            py.detach(|| std::thread::sleep(GATHER));
            self.sockets.find();
        }
    }

    /// Whether sockets that are ready were not served or returned yet.
    #[getter]
    fn has_ready(&self) -> bool {
        self.sockets.has_ready()
    }

    /// Return the next socket that is ready.
    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<PyFound<'py>>> {
        let found = self.sockets.next(&mut Nothing);
        self.found(py, found)
    }

    /// Let the lane serve the sockets that are ready, up to one for which Python must do something, which is returned with the
    /// physical offset of the log's new end, or until that is above `write_beyond`. `late_s`: seconds from now on after which
    /// requests that are read have waited too long.
    #[allow(clippy::too_many_arguments)]
    fn serve<'py>(
        &mut self,
        py: Python<'py>,
        mut lane: PyRefMut<'py, Lane>,
        offset: i64,
        room: i64,
        store_time_ms: i64,
        write_beyond: i64,
        late_s: f64,
        records: &Bound<'py, PyList>,
    ) -> PyResult<(i64, Option<PyFound<'py>>)> {
        let late = Duration::try_from_secs_f64(late_s.max(0.0)).ok().and_then(|late| Instant::now().checked_add(late));
        let cells = lane.cells().clone_ref(py).into_bound(py);
        let (server, offsets) = lane.parts(&cells);
        server.records.clear();
        let mut serving = Serving { server, offsets, offset, room, store_time_ms, write_beyond, late };
        let found = self.sockets.next(&mut serving);
        let end_offset = serving.offset;
        if !serving.server.records.is_empty() {
            records.append(PyBytes::new(py, &serving.server.records))?;
        }
        Ok((end_offset, self.found(py, found)?))
    }

    /// Send data of a socket; return the number of its bytes that are not sent yet, or an error's number below zero.
    fn write(&mut self, token: Token, pieces: Vec<Bound<'_, PyAny>>) -> PyResult<i64> {
        let views = pieces.iter().map(View::new).collect::<PyResult<Vec<_>>>()?;
        Ok(number(self.sockets.write(token, views)))
    }

    /// Send the answers of the lane; return the sockets with unsent bytes or an error, as `write` does.
    fn send(&mut self) -> Vec<(Token, i64)> {
        let mut left = Vec::new();
        self.sockets.send(|token, unsent| left.push((token, number(unsent))));
        left
    }

    /// Number of bytes of a socket that are not sent.
    fn unsent(&mut self, token: Token) -> usize {
        self.sockets.unsent(token)
    }

    /// The sockets that were read since the last call, with the time of the last read.
    fn note_reads(&mut self) -> Vec<(Token, f64)> {
        let mut reads = Vec::new();
        self.sockets.note_reads(|token, read_s| reads.push((token, read_s)));
        reads
    }
}
