//! Answers to sends, made from templates that the broker's own encoder wrote.

use crate::text::{push_decimal, push_hex16};

/// Pieces of an answer around the values: message id, queue id, queue offset, opaque.
pub struct Templates {
    /// JSON: before the message's physical offset, the queue id, the queue offset, the opaque, and the end.
    pub json: [Vec<u8>; 5],
    /// Binary: code, language and version.
    pub binary_start: Vec<u8>,
    /// Binary: the entries behind queueOffset.
    pub binary_end: Vec<u8>,
    /// The store host in hexadecimal, with which message ids begin.
    pub store_host: Vec<u8>,
}

/// Place of a stored message, for its answer.
pub struct Stored {
    pub physical_offset: i64,
    pub queue_id: i32,
    pub queue_offset: i64,
}

impl Templates {
    /// Append the frame of an answer.
    pub fn push(&self, out: &mut Vec<u8>, serialize_type: u8, opaque: i32, stored: &Stored) {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        if serialize_type == 0 {
            self.push_json(out, opaque, stored);
        } else {
            self.push_binary(out, opaque, stored);
        }
        let header_size = (out.len() - start - 8) as u32;
        out[start..start + 4].copy_from_slice(&(header_size + 4).to_be_bytes());
        out[start + 4..start + 8].copy_from_slice(&(u32::from(serialize_type) << 24 | header_size).to_be_bytes());
    }

    fn push_json(&self, out: &mut Vec<u8>, opaque: i32, stored: &Stored) {
        let [before_id, before_queue, before_offset, before_opaque, end] = &self.json;
        out.extend_from_slice(before_id);
        push_hex16(out, stored.physical_offset);
        out.extend_from_slice(before_queue);
        push_decimal(out, i64::from(stored.queue_id));
        out.extend_from_slice(before_offset);
        push_decimal(out, stored.queue_offset);
        out.extend_from_slice(before_opaque);
        push_decimal(out, i64::from(opaque));
        out.extend_from_slice(end);
    }

    fn push_binary(&self, out: &mut Vec<u8>, opaque: i32, stored: &Stored) {
        out.extend_from_slice(&self.binary_start);
        out.extend_from_slice(&opaque.to_be_bytes());
        out.extend_from_slice(&1i32.to_be_bytes()); // flag: a response
        out.extend_from_slice(&[0; 8]); // no remark; the size of the entries
        let entries = out.len();
        push_entry(out, b"msgId", |out| {
            out.extend_from_slice(&self.store_host);
            push_hex16(out, stored.physical_offset);
        });
        push_entry(out, b"queueId", |out| push_decimal(out, i64::from(stored.queue_id)));
        push_entry(out, b"queueOffset", |out| push_decimal(out, stored.queue_offset));
        out.extend_from_slice(&self.binary_end);
        let size = (out.len() - entries) as u32;
        out[entries - 4..entries].copy_from_slice(&size.to_be_bytes());
    }
}

fn push_entry(out: &mut Vec<u8>, key: &[u8], push_value: impl Fn(&mut Vec<u8>)) {
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(key);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    push_value(out);
    let size = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&size.to_be_bytes());
}
