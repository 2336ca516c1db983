//! System calls for sockets. Errors are the system's numbers.
//!
//! The calls are made with the pointer and the length of a slice or a struct that outlives them; descriptors are numbers, so a
//! wrong one is an error of the call.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub const READABLE: u32 = libc::EPOLLIN as u32;
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// No event; an error, which is always reported, is so once and not as long as it lasts.
pub const ONLY_CHANGES: u32 = libc::EPOLLET as u32;

/// Signals are no concern of a library, and no call may wait.
const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The size that a call returned; None if it could do nothing now.
fn size_of(returned: isize) -> Result<Option<usize>, i32> {
    match usize::try_from(returned) {
        Ok(size) => Ok(Some(size)),
        Err(_) => match last_error() {
            libc::EAGAIN | libc::EINTR => Ok(None),
            error => Err(error),
        },
    }
}

/// Receive bytes: how many, 0 at their end, None if there are none now.
pub fn receive(descriptor: RawFd, buffer: &mut [u8]) -> Result<Option<usize>, i32> {
    // SAFETY: the kernel writes at most the buffer's length.
    size_of(unsafe { libc::recv(descriptor, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) })
}

/// Send bytes; return how many the kernel took.
pub fn send(descriptor: RawFd, bytes: &[u8]) -> Result<usize, i32> {
    // SAFETY: the kernel reads at most the slice's length.
    let sent = unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), SEND_FLAGS) };
    size_of(sent).map(Option::unwrap_or_default)
}

/// Send pieces in one call; return how many bytes the kernel took.
pub fn send_pieces(descriptor: RawFd, pieces: &[IoSlice]) -> Result<usize, i32> {
    // SAFETY: a struct of numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: IoSlice has the layout of iovec, and the kernel only reads the pieces, which are borrowed until it returns.
    let sent = unsafe { libc::sendmsg(descriptor, &message, SEND_FLAGS) };
    size_of(sent).map(Option::unwrap_or_default)
}

/// A socket that is ready.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Event(libc::epoll_event);

impl Event {
    pub fn token(&self) -> u64 {
        self.0.u64
    }

    /// Whether a write will not be in vain: the kernel takes data, or says why it never will.
    pub fn ends_wait_to_write(&self) -> bool {
        self.0.events & (libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0
    }
}

/// Descriptors that the kernel watches.
pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> Result<Self, i32> {
        // SAFETY: no pointers.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(last_error());
        }
        // SAFETY: the descriptor is new, and nothing else closes it.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn control(&self, what: i32, descriptor: RawFd, token: u64, interest: u32) -> Result<(), i32> {
        let mut event = libc::epoll_event { events: interest, u64: token };
        // SAFETY: the kernel reads the event only during the call.
        match unsafe { libc::epoll_ctl(self.descriptor(), what, descriptor, &mut event) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }

    pub fn add(&self, descriptor: RawFd, token: u64, interest: u32) -> Result<(), i32> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, token, interest)
    }

    pub fn change(&self, descriptor: RawFd, token: u64, interest: u32) -> Result<(), i32> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, token, interest)
    }

    pub fn remove(&self, descriptor: RawFd) -> Result<(), i32> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0, 0)
    }

    /// Replace `found` by at most `count_max` ready sockets. After an error there are none.
    pub fn wait(&self, found: &mut Vec<Event>, count_max: usize) {
        found.clear();
        found.reserve(count_max);
        let room = found.as_mut_ptr().cast::<libc::epoll_event>();
        // SAFETY: there is room for so many events, and Event has the layout of what it contains (repr(transparent)).
        let count = unsafe { libc::epoll_wait(self.descriptor(), room, count_max as i32, 0) };
        // SAFETY: the kernel has written so many events.
        unsafe { found.set_len(usize::try_from(count).unwrap_or(0)) };
    }
}
