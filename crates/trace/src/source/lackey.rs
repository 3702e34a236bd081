//! Programs under lackey, a tool of valgrind.

use std::ffi::OsString;
use std::io::{PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use hugepilot_kernel::wait;
use hugepilot_record::trace::TracePiece;
use rustix::io::{FdFlags, fcntl_setfd};

use super::delivery::Delivery;
use super::engine::{Running, Traced, required};
use super::log::{BadLine, LogParser};
use super::mappings::Mappings;
use super::{LogFormat, TraceEnd, TraceStop};
use crate::TraceError;

const VALGRIND: &str = "valgrind";
/// Longest wait: an interrupt is noticed only between waits.
const NAP: Duration = Duration::from_millis(50);

/// Traces a program to its end, or until `delivery` has enough.
pub(super) fn trace(
    command: &[OsString],
    delivery: &mut Delivery<'_>,
) -> Result<TraceEnd, TraceError> {
    let program = Traced::new(command)?;
    let valgrind = required(VALGRIND, "valgrind")?;
    let (log, writer) = std::io::pipe().map_err(|error| receive(&error))?;
    fcntl_setfd(&writer, FdFlags::empty()).map_err(|error| receive(&error.into()))?;
    let descriptor = format!("--log-fd={}", writer.as_raw_fd());
    let options = ["--tool=lackey", "--trace-mem=yes", "--child-silent-after-fork=yes"];
    let options = options.map(OsString::from).into_iter().chain([descriptor.into()]);
    let mut running = program.start(&valgrind, &options.collect::<Vec<_>>())?;
    drop(writer);
    let mut parser = LogParser::new(LogFormat::Lackey);
    let followed = follow(log, &mut running, &mut parser, delivery);
    let ending = running.stop()?;
    followed?;
    let end = delivery.end();
    let is_complete = parser.is_complete && parser.has_end && end.stop == TraceStop::End;
    Ok(TraceEnd { ending, lost: parser.lost, is_complete, ..end })
}

fn receive(error: &std::io::Error) -> TraceError {
    TraceError::Receive { engine: VALGRIND, problem: error.to_string() }
}

/// Reads the log until its end. A process that the program left running may keep it open, so it
/// also ends with the program.
fn follow(
    mut log: PipeReader,
    running: &mut Running,
    parser: &mut LogParser,
    delivery: &mut Delivery<'_>,
) -> Result<(), TraceError> {
    let mut mappings = Mappings::new(running.pid(), "lackey-amd64-linux");
    let mut deliver = |mut piece: TracePiece, delivery: &mut Delivery<'_>| {
        if let TracePiece::Accesses { accesses, .. } = &mut piece
            && let Some(mappings) = mappings.place(accesses)
        {
            delivery.piece(TracePiece::Mappings(mappings))?;
        }
        delivery.piece(piece)
    };
    let bad = |BadLine { number, problem }| TraceError::Receive {
        engine: VALGRIND,
        problem: format!("line {number}: {problem}"),
    };
    let mut bytes = vec![0; 1 << 16];
    while delivery.check().is_continue() {
        // In this order, so that all that was written before the end is read.
        let has_ended = running.ended().is_some();
        let nap = if has_ended { Duration::ZERO } else { NAP };
        let count = match wait::readable(&[log.as_fd()], nap) {
            true => log.read(&mut bytes).map_err(|error| receive(&error))?,
            false if has_ended => 0,
            false => continue,
        };
        let mut deliver = |piece| deliver(piece, delivery);
        if count == 0 {
            let _ = parser.finish(&mut deliver);
            // Ctrl-C ends the program, too.
            let _ = delivery.check();
            break;
        }
        if parser.feed(&bytes[..count], &mut deliver).map_err(bad)?.is_break() {
            break;
        }
    }
    // A program that is to end still has its mappings.
    if let Some(mappings) = mappings.last() {
        delivery.last_mappings(mappings);
    }
    Ok(())
}
