//! The compiled lane of PocketMQ: what the broker does with an ordinary message, without the interpreter.
//!
//! It serves the frames at the front of a read that are ordinary sends, and stops before the first other one without any
//! effect. The Python path serves all frames and gives the same bytes; policy (access, limits, delays, transactions) is
//! there alone. Frames come from the network: no module but `index_file`, `python`, `python_pulls`, `python_sockets`, `queues` and
//! `system` may use unsafe code, and nothing panics on any input.

#![warn(clippy::all)]

#[forbid(unsafe_code)]
pub mod answer;
#[forbid(unsafe_code)]
pub mod copy;
#[forbid(unsafe_code)]
pub mod header;
#[forbid(unsafe_code)]
pub mod index;
#[cfg(feature = "python")]
mod index_file;
#[forbid(unsafe_code)]
mod name;
#[forbid(unsafe_code)]
pub mod properties;
#[forbid(unsafe_code)]
pub mod pull;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_pulls;
#[cfg(all(feature = "python", target_os = "linux"))]
mod python_sockets;
#[cfg(feature = "python")]
mod queues;
#[forbid(unsafe_code)]
pub mod record;
#[forbid(unsafe_code)]
pub mod serve;
#[cfg(target_os = "linux")]
#[forbid(unsafe_code)]
pub mod sockets;
#[cfg(target_os = "linux")]
pub mod system;
#[forbid(unsafe_code)]
pub mod text;
