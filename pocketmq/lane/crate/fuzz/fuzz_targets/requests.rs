//! Hostile reads and records: whatever the bytes are, the lane does not panic, and keeps its account of what it served.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pocketmq_lane::answer::Templates;
use pocketmq_lane::copy::Delivery;
use pocketmq_lane::index::{self, IndexState};
use pocketmq_lane::properties::Rules;
use pocketmq_lane::pull::{answer, places_of, read_pull, Asker, Offsets, Source};
use pocketmq_lane::serve::{tags_codes, Limits, NextOffsets, Place, Server, Stop};

const HOST: [u8; 8] = [127, 0, 0, 1, 0, 0, 0x2A, 0x9F];
const SLOTS: u32 = 97;

struct Next(Vec<i64>);

impl NextOffsets for Next {
    fn next(&mut self, topic: usize, queue: usize) -> Option<&mut i64> {
        self.0.get_mut(topic * 4 + queue)
    }
}

fn server() -> Server {
    let pieces = |text: &str| text.as_bytes().to_vec();
    let templates = Templates {
        json: [
            pieces("{\"code\":0,\"m\":\""),
            pieces("\",\"q\":\""),
            pieces("\",\"o\":\""),
            pieces("\",\"opaque\":"),
            pieces("}"),
        ],
        binary_start: vec![0, 0, 6, 1, 0x91],
        binary_end: Vec::new(),
        store_host: b"7F00000100002A9F".to_vec(),
    };
    let limits = Limits { body_size_max: 4096, frame_size_max: 1 << 16, header_size_max: 1 << 14 };
    let sent = ["KEYS", "TAGS", "UNIQ_KEY", "WAIT"].map(pieces).to_vec();
    let waited = ["KEYS", "TAGS", "REAL_TOPIC", "REAL_QID", "TIMER_DELIVER_MS"].map(pieces).to_vec();
    let mut server = Server::new(limits, templates, Rules::new(sent, waited, pieces("CLUSTER\u{1}c")), HOST);
    for name in ["T", "Narrow"] {
        server.learn(name.as_bytes(), 4, 3);
    }
    server
}

fuzz_target!(|data: &[u8]| {
    let mut server = server();
    let mut next = Next(vec![1, 1, 0, 7, 1, 1, 1, 1]);
    let mut place = Place { physical_offset: 1000, room: 1 << 15, store_time_ms: 1_700_000_000_000, born_host: &HOST };
    let (used, stop) = server.serve(data, &mut place, &mut next);
    assert!(used <= data.len());
    let size = server.records.len();
    assert_eq!(place.physical_offset, 1000 + size as i64);
    assert_eq!(place.room, (1 << 15) - size as i64);
    assert!(place.room >= 0);
    assert_eq!(server.first().units.iter().map(|unit| unit.size as usize).sum::<usize>(), size);
    assert_eq!(next.0.iter().sum::<i64>(), 13 + server.first().units.len() as i64);
    let found = server.runs();
    assert_eq!(found.runs.iter().map(|run| run.count as usize).sum::<usize>(), server.first().units.len());
    found.runs.iter().for_each(|run| server.count(run));
    assert_eq!(server.take_counts(usize::MAX).iter().map(|taken| taken.3 as usize).sum::<usize>(), size);
    assert!(server.take_counts(usize::MAX).is_empty());
    let mut file = vec![0u8; 40 + SLOTS as usize * 4 + 20 * (server.first().hashes.len() + 1)];
    let mut state = IndexState { count: 1, used_slots: 0, begin_ms: 0, begin_offset: 0 };
    index::put(&mut file, SLOTS, &mut state, &server.first().units, &server.first().hashes).expect("the file has room");
    assert_eq!(state.count, 1 + server.first().hashes.len() as i64);

    // The records are what a pull of these units returns.
    let mut units = Vec::new();
    for (index, run) in found.runs.iter().enumerate() {
        assert_eq!(tags_codes(found.units(index)).len(), run.count as usize);
        units.extend_from_slice(found.units(index));
    }
    let mut places = Vec::new();
    places_of(&units, 1 << 14, &mut places).expect("no record is lost");
    let source = Source { places: &places, file: &server.records, file_start: 1000, floor: 0 };
    let template = [b"a".to_vec(), b"b".to_vec(), b"c".to_vec(), b"d".to_vec(), b"e".to_vec()];
    if let Some(found) = answer(&source, &template, 1, Offsets { next: 1, min: 0, max: 9 }) {
        assert!(found.count > 0 && found.size <= size && found.frame_size() > found.size);
        assert_eq!(found.pieces(&source).map(<[u8]>::len).sum::<usize>(), found.frame_size());
    } else {
        assert!(units.is_empty());
    }

    // What was left is left again, without any effect.
    let rest = &data[used..];
    let (units_before, offsets_before) = (server.first().units.len(), next.0.clone());
    let full = place.room;
    let (again, _) = server.serve(rest, &mut place, &mut next);
    assert!(again == 0 && place.room == full && next.0 == offsets_before && server.first().units.len() == units_before);
    if let Stop::UnknownTopic(name) = stop {
        server.learn(&name, 0, 0);
        assert_eq!(server.serve(rest, &mut place, &mut next).0, 0);
    }

    // The bytes as a file of the log, with records of messages that waited; and what was served, as none of it did.
    let positions = [0, data.len() / 2, data.len()];
    let delivery = Delivery { now_ms: i64::MAX, precision_ms: 1000 };
    let before = (server.records.len(), server.first().units.len(), place.physical_offset);
    let (copied, _) = server.copy(data, &positions, delivery, &mut place, &mut next);
    assert!(copied <= positions.len() && server.first().units.len() == before.1 + copied);
    assert_eq!((server.records.len() - before.0) as i64, place.physical_offset - before.2);
    let stored = server.records.clone();
    if !stored.is_empty() && copied == 0 {
        assert_eq!(server.copy(&stored, &[0], delivery, &mut place, &mut next).0, 0);
    }

    if let Some(pull) = read_pull(data, 1 << 14, &mut Vec::new()) {
        assert!(pull.frame_size <= data.len());
        assert!(Asker::of(&pull).is_of(&pull));
    }
    // Units from anywhere, too, point at no byte outside the file.
    let (head, tail) = data.split_at(data.len() / 2);
    let _ = places_of(head, 1 << 12, &mut places);
    let source = Source { places: &places, file: tail, file_start: 0, floor: i64::MIN };
    if let Some(found) = answer(&source, &template, -1, Offsets { next: i64::MAX, min: 0, max: i64::MAX }) {
        assert_eq!(found.pieces(&source).map(<[u8]>::len).sum::<usize>(), found.frame_size());
    }
});
