//! Sockets of clients: which of them are ready, what they sent, and what waits to be sent to them.
//!
//! Each call does a bounded piece of work and never waits. A socket is known by a token, which is not used again. Its
//! descriptor belongs to the caller, who closes it after `remove`. Data that is not a lane's is borrowed from the caller
//! (`C`) and not copied: large answers are views of the mapped log.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::RawFd;

use crate::system::{self, Epoll, Event};

/// Most bytes read from a socket before the others are served.
pub const READ_MAX: usize = 256 * 1024;
/// Most sockets that one `wait` finds.
const READY_MAX: usize = 256;
/// Most pieces in one write, and most writes to a socket before the others are served.
const PIECES_MAX: usize = 64;
const WRITES_MAX: usize = 16;

/// Room for answers with which a buffer begins, the largest that is used again, and how many such buffers are kept.
const ANSWERS_START: usize = 512;
const ANSWERS_KEPT: usize = 16 * 1024;
const SPARE_MAX: usize = 256;

/// While at least so many sockets are busy, and fewer than one in so many of them is ready, `wait` asks for more time.
const BUSY_MIN: usize = 32;
const READY_PART: usize = 8;
/// Time in which the busy sockets are counted, in seconds.
const BUSY_WITHIN_S: f64 = 0.005;

/// Names a socket: its place, and above it how many sockets had the place before.
pub type Token = u64;

/// Serves bytes of a socket before anything else does.
pub trait Lane {
    /// Serve requests at the front of `data` from `host`, append answers, and return the bytes served.
    fn serve(&mut self, data: &[u8], host: &[u8], answers: &mut Vec<u8>) -> usize;
    /// Whether no more may be served before the caller has looked.
    fn is_full(&self) -> bool;
}

/// What the caller has to do for a socket.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Bytes of `received`, which the lane has not served.
    Data(Range<usize>),
    /// The lane has served all, and the answers to the read are large.
    Large,
    /// The peer sends no more.
    End,
    /// So many bytes could not be sent yet.
    Unsent(usize),
    /// The connection is broken, with this error number.
    Lost(i32),
}

enum Piece<C> {
    Own(Vec<u8>),
    Borrowed(C),
}

impl<C: AsRef<[u8]>> Piece<C> {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Borrowed(bytes) => bytes.as_ref(),
        }
    }
}

struct Socket<C> {
    descriptor: RawFd,
    host: Vec<u8>,
    is_reading: bool,
    /// Whether the lane sees the bytes first.
    is_direct: bool,
    /// Events that the kernel was asked for.
    interest: u32,
    /// Answers of the lane that wait for the end of the turn.
    answers: Vec<u8>,
    /// Bytes of answers of the lane since the caller last had to do something for the socket.
    answered: usize,
    /// Data that the kernel has not taken, the first `sent` bytes of whose first piece are sent.
    waiting: VecDeque<Piece<C>>,
    waiting_bytes: usize,
    sent: usize,
    /// Time of the last read that the caller has not been told of.
    last_read_s: Option<f64>,
    /// Number of the interval in which it was counted as busy.
    busy_in: u32,
}

impl<C: AsRef<[u8]>> Socket<C> {
    fn unsent(&self) -> usize {
        self.waiting_bytes + self.answers.len()
    }

    fn push(&mut self, piece: Piece<C>) {
        let size = piece.bytes().len();
        if size > 0 {
            self.waiting_bytes += size;
            self.waiting.push_back(piece);
        }
    }

    /// Let the answers wait behind the data that waits already.
    fn push_answers(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        self.push(Piece::Own(answers));
    }

    /// Send as much as the kernel takes.
    fn flush(&mut self) -> Result<(), i32> {
        for _ in 0..WRITES_MAX {
            if self.waiting.is_empty() {
                break;
            }
            let (mut slices, mut count, mut size) = ([IoSlice::new(&[]); PIECES_MAX], 0, 0);
            for (slice, piece) in slices.iter_mut().zip(&self.waiting) {
                let bytes = &piece.bytes()[if count == 0 { self.sent } else { 0 }..];
                *slice = IoSlice::new(bytes);
                size += bytes.len();
                count += 1;
            }
            let sent = system::send_pieces(self.descriptor, &slices[..count])?;
            self.note_sent(sent);
            if sent < size {
                break;
            }
        }
        Ok(())
    }

    fn note_sent(&mut self, count: usize) {
        self.waiting_bytes -= count;
        self.sent += count;
        while let Some(first) = self.waiting.front().map(|piece| piece.bytes().len()).filter(|first| *first <= self.sent) {
            self.sent -= first;
            self.waiting.pop_front();
        }
    }

    /// Ask the kernel for the events that matter now.
    fn set_interest(&mut self, epoll: &Epoll, token: Token) -> Result<(), i32> {
        let read = if self.is_reading { system::READABLE } else { 0 };
        let write = if self.waiting.is_empty() { 0 } else { system::WRITABLE };
        // An error is reported even if nothing is asked for: then only once.
        let interest = if read | write == 0 { system::ONLY_CHANGES } else { read | write };
        if interest != self.interest {
            epoll.change(self.descriptor, token, interest)?;
            self.interest = interest;
        }
        Ok(())
    }
}

struct Slot<C> {
    generation: u32,
    socket: Option<Socket<C>>,
}

/// The sockets of one server.
pub struct Sockets<C> {
    epoll: Epoll,
    slots: Vec<Slot<C>>,
    free: Vec<u32>,
    ready: Vec<Event>,
    next: usize,
    /// Sockets with answers of the lane.
    answered: Vec<Token>,
    /// Empty buffers for answers.
    spare: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    large_size: usize,
    now_s: f64,
    busy: Busy,
}

/// Counts the sockets that are read, in successive intervals.
struct Busy {
    interval: u32,
    began_s: f64,
    count: usize,
    /// Count of the interval before, 0 if nothing was read for longer.
    before: usize,
}

impl Busy {
    fn look(&mut self, now_s: f64) {
        let passed_s = now_s - self.began_s;
        if passed_s >= BUSY_WITHIN_S {
            self.before = if passed_s < 2.0 * BUSY_WITHIN_S { self.count } else { 0 };
            (self.interval, self.began_s, self.count) = (self.interval.wrapping_add(1), now_s, 0);
        }
    }
}

impl<C: AsRef<[u8]>> Sockets<C> {
    /// `large_size`: answers to one read of this size are `Found::Large`. The error is a number of the system.
    pub fn new(large_size: usize) -> Result<Self, i32> {
        Ok(Sockets {
            epoll: Epoll::new()?,
            slots: Vec::new(),
            free: Vec::new(),
            ready: Vec::with_capacity(READY_MAX),
            next: 0,
            answered: Vec::new(),
            spare: Vec::new(),
            buffer: vec![0; READ_MAX],
            large_size,
            now_s: 0.0,
            busy: Busy { interval: 1, began_s: 0.0, count: 0, before: 0 },
        })
    }

    /// The descriptor that is readable while a socket is ready.
    pub fn descriptor(&self) -> RawFd {
        self.epoll.descriptor()
    }

    /// Add a connected socket, which is not read before `start`.
    pub fn add(&mut self, descriptor: RawFd) -> Result<Token, i32> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, socket: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        let token = Token::from(slot.generation) << 32 | Token::from(index);
        if let Err(error) = self.epoll.add(descriptor, token, system::ONLY_CHANGES) {
            self.free.push(index);
            return Err(error);
        }
        slot.socket = Some(Socket {
            descriptor,
            host: Vec::new(),
            is_reading: false,
            is_direct: false,
            interest: system::ONLY_CHANGES,
            answers: Vec::new(),
            answered: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sent: 0,
            last_read_s: None,
            busy_in: 0,
        });
        Ok(token)
    }

    fn socket(&mut self, token: Token) -> Option<&mut Socket<C>> {
        find(&mut self.slots, token)
    }

    /// Forget a socket before its descriptor is closed. Return the time of its last read that the caller does not know.
    pub fn remove(&mut self, token: Token) -> Option<f64> {
        let descriptor = self.socket(token)?.descriptor;
        let slot = &mut self.slots[token as u32 as usize];
        let socket = slot.socket.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token as u32);
        // It fails only if the descriptor is closed already, which ends the registration, too.
        let _ = self.epoll.remove(descriptor);
        socket.last_read_s
    }

    /// Read a new socket from now on; its bytes go through the lane. `host` is the peer's address in records.
    pub fn start(&mut self, token: Token, host: &[u8]) -> Result<(), i32> {
        if let Some(socket) = self.socket(token) {
            socket.host = host.to_vec();
            socket.is_direct = true;
        }
        self.read(token, true)
    }

    /// Let the lane see the bytes of a socket first, or not.
    pub fn set_direct(&mut self, token: Token, is_direct: bool) {
        if let Some(socket) = self.socket(token) {
            socket.is_direct = is_direct;
        }
    }

    /// Read a socket, or stop reading it.
    pub fn read(&mut self, token: Token, is_reading: bool) -> Result<(), i32> {
        self.changed(token, |socket| {
            socket.is_reading = is_reading;
            Ok(())
        })?;
        Ok(())
    }

    /// Bytes of a socket that are not sent.
    pub fn unsent(&mut self, token: Token) -> usize {
        self.socket(token).map_or(0, |socket| socket.unsent())
    }

    /// Change a socket and then the events that are asked for; return the bytes that are not sent.
    fn changed(&mut self, token: Token, change: impl FnOnce(&mut Socket<C>) -> Result<(), i32>) -> Result<usize, i32> {
        let Some(socket) = find(&mut self.slots, token) else { return Ok(0) };
        change(socket)?;
        socket.set_interest(&self.epoll, token)?;
        Ok(socket.unsent())
    }

    /// Send pieces of data, behind what waits; return the bytes that are not sent yet.
    pub fn write(&mut self, token: Token, pieces: impl IntoIterator<Item = C>) -> Result<usize, i32> {
        self.changed(token, |socket| {
            let is_full = !socket.waiting.is_empty();
            socket.push_answers();
            for piece in pieces {
                socket.push(Piece::Borrowed(piece));
            }
            if is_full {
                Ok(())
            } else {
                socket.flush()
            }
        })
    }

    /// Send the answers of the lane, one write for each socket; report what is not sent.
    pub fn send(&mut self, mut report: impl FnMut(Token, Result<usize, i32>)) {
        for token in std::mem::take(&mut self.answered) {
            let Some(socket) = self.socket(token).filter(|socket| !socket.answers.is_empty()) else { continue };
            if socket.waiting.is_empty() {
                match system::send(socket.descriptor, &socket.answers) {
                    Ok(sent) if sent == socket.answers.len() => {
                        let mut answers = std::mem::take(&mut socket.answers);
                        if answers.capacity() <= ANSWERS_KEPT && self.spare.len() < SPARE_MAX {
                            answers.clear();
                            self.spare.push(answers);
                        }
                        continue;
                    }
                    Ok(sent) => drop(socket.answers.drain(..sent)),
                    Err(error) => {
                        report(token, Err(error));
                        continue;
                    }
                }
            }
            let unsent = self.changed(token, |socket| {
                socket.push_answers();
                Ok(())
            });
            report(token, unsent);
        }
    }

    /// Find the sockets that are ready, at `now_s`. Those that were found before are dropped; they are found again.
    ///
    /// Return whether many more are likely to be ready soon: to serve them together costs less for each.
    pub fn wait(&mut self, now_s: f64) -> bool {
        self.now_s = now_s;
        self.busy.look(now_s);
        self.find();
        self.busy.before >= BUSY_MIN && self.ready.len() * READY_PART < self.busy.before
    }

    /// Find the sockets that are ready now.
    pub fn find(&mut self) {
        self.next = 0;
        self.epoll.wait(&mut self.ready, READY_MAX);
    }

    /// Whether sockets are ready that `next` has not come to.
    pub fn has_ready(&self) -> bool {
        self.next < self.ready.len()
    }

    /// The bytes of the last read.
    pub fn received(&self) -> &[u8] {
        &self.buffer
    }

    /// Let the lane serve the ready sockets, up to the first for which the caller has to do something. The numbers are the
    /// bytes of the lane's answers to this read, and since the caller last had something to do for this socket.
    pub fn next(&mut self, lane: &mut impl Lane) -> Option<(Token, Found, usize, usize)> {
        while self.has_ready() && !lane.is_full() {
            let event = self.ready[self.next];
            self.next += 1;
            let token = event.token();
            let Some(socket) = find(&mut self.slots, token) else { continue };
            if !socket.waiting.is_empty() && event.ends_wait_to_write() {
                let unsent = self.changed(token, |socket| socket.flush());
                return Some((token, unsent.map_or_else(Found::Lost, Found::Unsent), 0, 0));
            }
            if !socket.is_reading {
                continue;
            }
            let size = match system::receive(socket.descriptor, &mut self.buffer) {
                Ok(None) => continue,
                Ok(Some(0)) => return Some((token, Found::End, 0, std::mem::take(&mut socket.answered))),
                Ok(Some(size)) => size,
                Err(error) => return Some((token, Found::Lost(error), 0, 0)),
            };
            socket.last_read_s = Some(self.now_s);
            if socket.busy_in != self.busy.interval {
                socket.busy_in = self.busy.interval;
                self.busy.count += 1;
            }
            let (mut used, before) = (0, socket.answers.len());
            if socket.is_direct {
                if socket.answers.capacity() == 0 {
                    socket.answers = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(ANSWERS_START));
                }
                used = lane.serve(&self.buffer[..size], &socket.host, &mut socket.answers);
                if socket.answers.is_empty() {
                    self.spare.push(std::mem::take(&mut socket.answers));
                } else if before == 0 {
                    self.answered.push(token);
                }
            }
            let answered = socket.answers.len() - before;
            socket.answered += answered;
            let found = if used < size {
                Found::Data(used..size)
            } else if answered >= self.large_size {
                Found::Large
            } else {
                continue;
            };
            return Some((token, found, answered, std::mem::take(&mut socket.answered)));
        }
        None
    }

    /// Call back with the sockets that were read since the last call, and the time of the last read of each.
    pub fn note_reads(&mut self, mut note: impl FnMut(Token, f64)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(read_s) = slot.socket.as_mut().and_then(|socket| socket.last_read_s.take()) {
                note(Token::from(slot.generation) << 32 | index as Token, read_s);
            }
        }
    }
}

fn find<C>(slots: &mut [Slot<C>], token: Token) -> Option<&mut Socket<C>> {
    let slot = slots.get_mut(token as u32 as usize)?;
    slot.socket.as_mut().filter(|_| slot.generation == (token >> 32) as u32)
}
