//! Logs of other tools: the text of lackey, of `perf script` and of drmemtrace's view tool.

mod drmemtrace;
mod lackey;
mod perf;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hugepilot_kernel::file;
use hugepilot_record::trace::{ADDRESS_BITS, TraceAccess, TracePiece};

use super::delivery::Delivery;
use super::{LogFormat, TraceEnd, TraceStop};
use crate::TraceError;

/// Most bytes of a line.
const MAX_LINE: usize = 64 << 10;
/// Accesses of a piece.
const PIECE: usize = 8192;

/// Meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Loads or stores one address, or loads and then stores it.
    Access { thread: u32, address: u64, load: bool, store: bool },
    /// An access without an address in the program.
    Lost,
    /// End of a complete log.
    End,
    /// No access.
    Other,
}

/// Parser of a log that arrives in parts.
pub(super) struct LogParser {
    format: LogFormat,
    /// Begin of a line whose end has not arrived.
    partial: Vec<u8>,
    /// Lines so far.
    lines: u64,
    /// Number of each of the log's threads in the trace.
    threads: BTreeMap<u32, u16>,
    thread: u16,
    accesses: Vec<TraceAccess>,
    pub(super) lost: u64,
    /// Whether a line of lackey says that the program has ended.
    pub(super) has_end: bool,
    /// Whether the last line has its end; known after [`Self::finish`].
    pub(super) is_complete: bool,
}

/// Line that is not understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    pub(super) number: u64,
    pub(super) problem: String,
}

impl LogParser {
    pub(super) const fn new(format: LogFormat) -> Self {
        Self {
            format,
            partial: Vec::new(),
            lines: 0,
            threads: BTreeMap::new(),
            thread: 0,
            accesses: Vec::new(),
            lost: 0,
            has_end: false,
            is_complete: false,
        }
    }

    /// Parses the next bytes of the log, and delivers pieces.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        deliver: &mut dyn FnMut(TracePiece) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, BadLine> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            let flow = if self.partial.is_empty() {
                self.line(line, deliver)?
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, deliver)?
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() > MAX_LINE {
            return Err(self.bad(format!("longer than {MAX_LINE} bytes"), 1));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Ends the log: delivers the last piece. A line without its end was cut, and is ignored.
    pub(super) fn finish(
        &mut self,
        deliver: &mut dyn FnMut(TracePiece) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.is_complete = self.partial.is_empty();
        self.flush(deliver)
    }

    fn line(
        &mut self,
        line: &[u8],
        deliver: &mut dyn FnMut(TracePiece) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, BadLine> {
        self.lines += 1;
        let parsed = match self.format {
            LogFormat::Lackey => lackey::line(line),
            LogFormat::Perf => perf::line(line),
            LogFormat::Drmemtrace => drmemtrace::line(line),
        };
        match parsed.map_err(|problem| self.bad(problem, 0))? {
            Line::Access { address, .. } if address >> ADDRESS_BITS != 0 => self.lost += 1,
            Line::Access { thread, address, load, store } => {
                return Ok(self.access(thread, address, [load, store], deliver));
            }
            Line::Lost => self.lost += 1,
            Line::End => self.has_end = true,
            Line::Other => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn access(
        &mut self,
        thread: u32,
        address: u64,
        [load, store]: [bool; 2],
        deliver: &mut dyn FnMut(TracePiece) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let next = u16::try_from(self.threads.len());
        let number = self.threads.get(&thread).copied().or(next.ok());
        let Some(number) = number else {
            self.lost += u64::from(load) + u64::from(store);
            return ControlFlow::Continue(());
        };
        self.threads.entry(thread).or_insert(number);
        if number != self.thread || self.accesses.len() >= PIECE {
            self.flush(deliver)?;
            self.thread = number;
        }
        self.accesses.extend(load.then_some(TraceAccess { address, store: false }));
        self.accesses.extend(store.then_some(TraceAccess { address, store: true }));
        ControlFlow::Continue(())
    }

    fn flush(&mut self, deliver: &mut dyn FnMut(TracePiece) -> ControlFlow<()>) -> ControlFlow<()> {
        if self.accesses.is_empty() {
            return ControlFlow::Continue(());
        }
        let accesses = std::mem::replace(&mut self.accesses, Vec::with_capacity(PIECE + 1));
        deliver(TracePiece::Accesses { thread: self.thread, accesses })
    }

    fn bad(&self, problem: String, after: u64) -> BadLine {
        BadLine { number: self.lines + after, problem }
    }
}

/// Delivers a log in a file; `-` is the standard input.
pub(super) fn read(
    path: &Path,
    format: LogFormat,
    delivery: &mut Delivery<'_>,
) -> Result<TraceEnd, TraceError> {
    let is_stdin = path.as_os_str() == file::STDIN;
    let opened = if is_stdin { file::stdin() } else { file::open(path) };
    // The standard input may be at its end, as another reader shares it.
    let mut at = 0;
    let file = opened.map_err(TraceError::read(path))?;
    let bad = |BadLine { number, problem }| TraceError::Line {
        path: path.to_owned(),
        format,
        number,
        problem,
    };
    let mut parser = LogParser::new(format);
    let mut bytes = vec![0; 1 << 18];
    loop {
        let count = file.read_at(&mut bytes, at).map_err(TraceError::read(path))?;
        at += count as u64;
        let deliver = &mut |piece| delivery.piece(piece);
        let flow = match count {
            0 => parser.finish(deliver),
            _ => parser.feed(&bytes[..count], deliver).map_err(bad)?,
        };
        if flow.is_break() || count == 0 || delivery.check().is_break() {
            break;
        }
    }
    // Lackey ends each log with the exit code; a log may be cut between two lines.
    let has_end = format != LogFormat::Lackey || parser.has_end;
    let is_complete = parser.is_complete && has_end;
    let end = TraceEnd { lost: parser.lost, is_complete, ..delivery.end() };
    if end.stop == TraceStop::End && end.delivered + end.omitted == 0 {
        let (path, lost) = (path.to_owned(), end.lost);
        return Err(TraceError::NoAccessInLog { path, format, lost });
    }
    Ok(end)
}

/// Parses a hexadecimal address without prefix.
fn address(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_hexdigit) && !text.is_empty();
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    u64::from_str_radix(text, 16).ok()
}

/// Parses a decimal number.
fn number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Returns the begin of a line for an error.
fn quoted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(60)]);
    format!("{:?}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::{TraceOptions, TraceSource, trace};

    /// Thread, address, store.
    type Found = (u16, u64, bool);

    /// Feeds `log` in parts of `part` bytes. Returns its accesses.
    fn parse(
        format: LogFormat,
        log: &str,
        part: usize,
    ) -> Result<(Vec<Found>, LogParser), BadLine> {
        let mut found = Vec::new();
        let mut deliver = |piece| {
            if let TracePiece::Accesses { thread, accesses } = piece {
                found.extend(accesses.iter().map(|access| (thread, access.address, access.store)));
            }
            ControlFlow::Continue(())
        };
        let mut parser = LogParser::new(format);
        for bytes in log.as_bytes().chunks(part) {
            _ = parser.feed(bytes, &mut deliver)?;
        }
        _ = parser.finish(&mut deliver);
        Ok((found, parser))
    }

    #[test]
    fn a_lackey_log_is_parsed_in_any_parts() {
        let log = "==7== Lackey\nI  0401ab70,3\n L 1fff000698,8\n S 04035480,32\n M 10,1\n\
                   ==7== Exit code:       0\n";
        let expected =
            [(0, 0x1f_ff00_0698, false), (0, 0x403_5480, true), (0, 0x10, false), (0, 0x10, true)];
        for part in [1, 7, 1000] {
            let (found, parser) = parse(LogFormat::Lackey, log, part).unwrap();
            assert_eq!(found, expected);
            assert!(parser.is_complete);
        }
        for log in [" L 1000,8\n S 2000,8\n", " L 1000,8\n==1==\n"] {
            let (_, parser) = parse(LogFormat::Lackey, log, 1000).unwrap();
            assert!(parser.is_complete && !parser.has_end, "{log:?}");
        }
        // Cut in the last line, in a message, and in an access.
        for (bytes, accesses) in [(1, 4), (20, 4), (30, 2)] {
            let cut = &log[..log.len() - bytes];
            let (found, parser) = parse(LogFormat::Lackey, cut, 9).unwrap();
            assert!(found.len() == accesses && !parser.is_complete, "{bytes} {found:?}");
        }
    }

    #[test]
    fn threads_are_numbered_in_the_order_of_first_use() {
        let log = " 700     1000\n 500     2000\n 700     3000\n 700     0\n\
                   700 ffffffff81000000\n";
        let (found, parser) = parse(LogFormat::Perf, log, 1000).unwrap();
        assert_eq!(found, [(0, 0x1000, false), (1, 0x2000, false), (0, 0x3000, false)]);
        assert_eq!(parser.lost, 2);
    }

    #[test]
    fn a_text_of_drmemtrace_has_its_threads() {
        let log = "Output format:\n<--record#-> <--instr#->: <Wrkld.Tid> <record details>\n\
                   <marker: core is idle>\n\
                   ------------------------------------------------------------\n\
                   \u{20}  8  1: W0.T700 ifetch       3 byte(s) @ 0x00007fc205a61940 48 89 e7\n\
                   \u{20}  9  1: W0.T700 write        8 byte(s) @ 0x00007fff9a9e3528 by PC 0x10\n\
                   ------------------------------------------------------------\n\
                   \u{20} 10  2: W0.T500 read         8 byte(s) @ 0x0000000000001000 by PC 0x14\n\
                   \u{20} 11  3: W0.T700 read         8 byte(s) @ 0xffffffff81000000 by PC 0x18\n\
                   View tool results:\n              3 : total instructions\n";
        for part in [1, 9, 1000] {
            let (found, parser) = parse(LogFormat::Drmemtrace, log, part).unwrap();
            assert_eq!(found, [(0, 0x7fff_9a9e_3528, true), (1, 0x1000, false)]);
            assert_eq!((parser.lost, parser.is_complete), (1, true));
        }
    }

    #[test]
    fn a_log_without_an_access_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let import = |bytes: &[u8], format, skip| {
            std::fs::write(&path, bytes).unwrap();
            let options = TraceOptions { skip, ..TraceOptions::default() };
            let source = TraceSource::Log { path: path.clone(), format };
            let end = trace(&source, &options, &|| false, &mut |_, _| ControlFlow::Continue(()));
            end.map(|end| end.omitted).map_err(|error| error.to_string())
        };
        for format in LogFormat::ALL {
            // The example is one access, and is parsed.
            let line = format!("{}\n", format.example());
            assert_eq!(import(line.as_bytes(), format, 1), Ok(1), "{format}");
            for none in [&b""[..], b"\x7fELF\x02\x01\x01\0\0\0", b"\n\n"] {
                let error = import(none, format, 0).unwrap_err();
                let example = format!("expected lines such as {:?}", format.example());
                assert!(error.ends_with(&format!("no line is an access; {example}")), "{error}");
            }
        }
        let error = import(b"7 0\n7 ffffffff81000000\n", LogFormat::Perf, 0).unwrap_err();
        assert!(error.contains("no address is one of the program in 2 accesses"), "{error}");
    }

    #[test]
    fn a_log_of_lackey_without_an_exit_code_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let whole = " L 1000,8\n==7== \n==7== Exit code:       0\n";
        for (log, format, is_complete) in [
            (whole, LogFormat::Lackey, true),
            (&whole[..10], LogFormat::Lackey, false),
            ("7 1000\n", LogFormat::Perf, true),
        ] {
            std::fs::write(&path, log).unwrap();
            let source = TraceSource::Log { path: path.clone(), format };
            let options = TraceOptions::default();
            let end = trace(&source, &options, &|| false, &mut |_, _| ControlFlow::Continue(()));
            assert_eq!(end.unwrap().is_complete, is_complete, "{log:?}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let bad = |format, log: &str| parse(format, log, 1000).err().unwrap();
        let error = bad(LogFormat::Lackey, " L 10,8\n\n X 10,8\n");
        assert_eq!((error.number, error.problem.as_str()), (3, "\" X 10,8\" is not an access"));
        let error = bad(LogFormat::Perf, "7 1000\n7 xyz\n");
        assert_eq!((error.number, error.problem.as_str()), (2, "\"xyz\" is not an address"));
        let long = "a".repeat(MAX_LINE + 1);
        assert_eq!(bad(LogFormat::Perf, &format!("7 1000\n{long}")).number, 2);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_an_error(
            log in "[ 0-9a-fLSMI,:=\n/WT.@]{0,200}",
            part in 1usize..50,
        ) {
            for format in LogFormat::ALL {
                let whole = parse(format, &log, 1000).map(|(found, _)| found);
                let parts = parse(format, &log, part).map(|(found, _)| found);
                prop_assert_eq!(whole, parts);
            }
        }
    }
}
