//! Phases of a recording: those of the program, and the part of its run that is recorded.

use std::io::Write;

use hugepilot_kernel::clock;
use hugepilot_record::Sentence;
use hugepilot_recording::{Line, MAX_PHASES, NoBegin, Phase, RecordStop};

use super::Session;
use super::output::{OutputCopy, OutputEvent};

impl<W: Write> Session<'_, W> {
    /// Why the recording does not begin; `None` if it began.
    pub(super) fn no_begin(&self) -> Option<NoBegin> {
        let waiting = self.program.as_ref().filter(|program| program.is_waiting);
        waiting.and_then(|program| program.patterns.no_begin())
    }

    /// Takes the last phases. Begins a recording that waited until the end, so that the file has a
    /// head.
    pub(super) fn take_last_phases(&mut self, stop: RecordStop) {
        let waited = self.is_waiting();
        if let Some(program) = &self.program
            && let Some(output) = program.output.as_ref().filter(|_| stop == RecordStop::End)
        {
            output.wait();
        }
        self.take_phases();
        if let Some(no_begin) = self.no_begin().filter(|_| self.write_error.is_none()) {
            self.is_empty = true;
            self.recorder.begin_empty();
            self.recorder.warn(no_begin.text());
            self.write_head();
        } else if waited && stop == RecordStop::End {
            self.is_empty = true;
            let text = "the program ended before the first slice; the recording has no values";
            self.recorder.warn(text.to_owned());
        }
    }

    /// Takes the phases that began, and the begin and the end of the recording.
    pub(super) fn take_phases(&mut self) {
        let Some(program) = &mut self.program else { return };
        let mut found: Vec<OutputEvent> =
            program.output.iter().flat_map(OutputCopy::events).collect();
        // Those beyond the limit are not even read.
        let markers = program.markers.iter_mut().filter(|_| !self.too_many_phases);
        let marked = markers.flat_map(|one| one.phases(clock::monotonic()));
        found.extend(marked.map(OutputEvent::Phase));
        for event in found {
            match event {
                _ if self.is_over => return,
                OutputEvent::From(_) if self.is_waiting() => self.begin(),
                OutputEvent::From(_) => {}
                OutputEvent::To => self.is_over = true,
                OutputEvent::Phase(phase) => self.take_phase(phase),
            }
        }
    }

    fn begin(&mut self) {
        self.recorder.begin();
        if let Some(program) = &mut self.program {
            program.is_waiting = false;
        }
        self.write_head();
    }

    /// Takes a phase. The only one that is recorded begins the recording, and the next one ends it.
    fn take_phase(&mut self, phase: Phase) {
        let only = self.program.as_ref().and_then(|program| program.patterns.only.as_deref());
        let is_only = only == Some(&phase.name);
        match (only.is_some(), self.is_waiting()) {
            (true, true) if is_only => {
                self.begin();
                self.begin_phase(phase);
            }
            (_, true) => {}
            (true, false) => self.is_over = true,
            (false, false) => self.begin_phase(phase),
        }
    }

    /// Begins a phase, unless there are too many.
    fn begin_phase(&mut self, phase: Phase) {
        if self.phases < MAX_PHASES as u64 {
            self.phases += 1;
            self.recorder.begin_phase(phase.time);
            self.write(vec![Line::Phase(phase)]);
        } else if !std::mem::replace(&mut self.too_many_phases, true) {
            let text = format!("more than {MAX_PHASES} phases; later ones are not recorded");
            self.recorder.warn(text);
        }
    }
}
