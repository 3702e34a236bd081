//! Profile of pprof: a gzipped protocol buffer (`profile.proto` of github.com/google/pprof).

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use hugepilot_render::back_end::printable;

use crate::{Frame, Timeline, frame_name};

/// Samples of each stack, labelled with the process and the mapping of the data.
///
/// # Errors
/// Those of compression into memory.
pub fn pprof(timeline: &Timeline) -> io::Result<Vec<u8>> {
    let mut profile = Profile::default();
    profile.text("");
    for process in &timeline.processes {
        for (stack, (samples, streamed)) in process.code.stacks.iter().zip(&process.code.totals) {
            let mut sample = Message::default();
            let locations: Vec<u64> =
                stack.frames.iter().map(|frame| profile.location(frame)).collect();
            sample.packed(1, &locations);
            sample.packed(2, &[*samples, *streamed]);
            let mapping = stack.mapping.as_deref().unwrap_or("[unknown address]");
            for (key, value) in [("process", &*process.title()), ("memory", mapping)] {
                let mut label = Message::default();
                label.number(1, profile.text(key));
                label.number(2, profile.text(value));
                sample.message(3, &label);
            }
            profile.samples.push(sample);
        }
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&profile.finish(timeline))?;
    encoder.finish()
}

/// Parts of the profile so far. IDs begin with 1.
#[derive(Default)]
struct Profile {
    samples: Vec<Message>,
    locations: Vec<Message>,
    functions: Vec<Message>,
    texts: Vec<String>,
    text_index: HashMap<String, u64>,
    location_index: HashMap<Frame, u64>,
    function_index: HashMap<(String, String), u64>,
}

impl Profile {
    fn text(&mut self, text: &str) -> u64 {
        let text = printable(text);
        if let Some(&index) = self.text_index.get(&text) {
            return index;
        }
        let index = self.texts.len() as u64;
        self.texts.push(text.clone());
        self.text_index.insert(text, index);
        index
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        if let Some(&id) = self.location_index.get(frame) {
            return id;
        }
        let (file, number) = match &frame.source {
            Some((file, number)) => (file.clone(), *number),
            None => (frame.object.clone().unwrap_or_default(), 0),
        };
        let function = self.function(frame_name(frame), file);
        let id = self.locations.len() as u64 + 1;
        let mut line = Message::default();
        line.number(1, function);
        line.number(2, u64::from(number));
        let mut location = Message::default();
        location.number(1, id);
        location.message(4, &line);
        self.locations.push(location);
        self.location_index.insert(frame.clone(), id);
        id
    }

    fn function(&mut self, name: String, file: String) -> u64 {
        let key = (name, file);
        if let Some(&id) = self.function_index.get(&key) {
            return id;
        }
        let id = self.functions.len() as u64 + 1;
        let (name, file) = (self.text(&key.0), self.text(&key.1));
        let mut function = Message::default();
        function.number(1, id);
        function.number(2, name);
        function.number(3, name);
        function.number(4, file);
        self.functions.push(function);
        self.function_index.insert(key, id);
        id
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn finish(mut self, timeline: &Timeline) -> Vec<u8> {
        let mut whole = Message::default();
        for name in ["stalls", "streamed"] {
            let mut kind = Message::default();
            kind.number(1, self.text(name));
            kind.number(2, self.text("samples"));
            whole.message(1, &kind);
        }
        self.samples.iter().for_each(|sample| whole.message(2, sample));
        self.locations.iter().for_each(|location| whole.message(4, location));
        self.functions.iter().for_each(|function| whole.message(5, function));
        self.texts.iter().for_each(|text| whole.bytes(6, text.as_bytes()));
        let started = timeline.head.started_unix_seconds.max(0.0);
        whole.number(9, (started * 1e9) as u64);
        whole.number(10, (timeline.duration.max(0.0) * 1e9) as u64);
        // Without it, pprof shows the last kind.
        whole.number(14, self.text("stalls"));
        whole.0
    }
}

/// Message in the wire format of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    #[allow(clippy::cast_possible_truncation)]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    fn packed(&mut self, field: u64, values: &[u64]) {
        let mut packed = Self::default();
        values.iter().for_each(|&value| packed.varint(value));
        self.message(field, &packed);
    }
}
