//! Stored traces.

use std::io::BufReader;
use std::path::Path;

use hugepilot_kernel::file;
use hugepilot_record::trace::{TraceError as FormatError, TraceReader, TraceWarning};

use super::TraceEnd;
use super::delivery::Delivery;
use crate::TraceError;

/// Delivers a stored trace. A file that was cut is delivered up to the cut, if it has an access.
pub(super) fn read(path: &Path, delivery: &mut Delivery<'_>) -> Result<TraceEnd, TraceError> {
    let file = file::open(path).map_err(TraceError::read(path))?;
    let damaged = |source| match source {
        FormatError::Io { source, .. } => TraceError::read(path)(source),
        source => TraceError::Damaged { path: path.to_owned(), source },
    };
    let mut reader = TraceReader::new(BufReader::new(file)).map_err(damaged)?;
    let mut at = reader.bytes();
    while let Some(piece) = reader.piece().map_err(damaged)? {
        delivery.block = Some(at);
        at = reader.bytes();
        if delivery.piece(piece).is_break() {
            return Ok(delivery.end());
        }
    }
    let is_complete = reader.is_complete();
    if reader.accesses() == 0 {
        if is_complete {
            return Err(TraceError::NoAccess { path: path.to_owned() });
        }
        let problem = "the file ends before its first access".to_owned();
        return Err(damaged(FormatError::Block { at, problem }));
    }
    let stored = reader.warnings().to_vec();
    Ok(TraceEnd {
        is_complete: is_complete && !stored.iter().any(TraceWarning::is_early_end),
        cut: (!is_complete).then_some(at),
        stored,
        folded: reader.folded(),
        ..delivery.end()
    })
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::path::PathBuf;

    use hugepilot_record::trace::{TraceAccess, TracePiece, TraceWriter};

    use super::*;
    use crate::source::{TraceOptions, TraceSource, trace};

    fn pieces(path: PathBuf) -> Result<(Vec<TracePiece>, TraceEnd), TraceError> {
        let mut pieces = Vec::new();
        let mut sink = |piece, _| {
            pieces.push(piece);
            ControlFlow::Continue(())
        };
        let source = TraceSource::File(path);
        let end = trace(&source, &TraceOptions::default(), &|| false, &mut sink)?;
        Ok((pieces, end))
    }

    #[test]
    fn a_stored_trace_states_whether_it_has_the_whole_program() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let accesses = vec![TraceAccess { address: 4096, store: true }];
        for (warning, is_complete) in [
            (TraceWarning::Failed { status: 3 }, true),
            (TraceWarning::Skipped { accesses: 7 }, true),
            (TraceWarning::Killed { signal: 9 }, false),
            (TraceWarning::Cut, false),
        ] {
            let mut writer = TraceWriter::new(Vec::new()).unwrap();
            let piece = TracePiece::Accesses { thread: 0, accesses: accesses.clone() };
            writer.piece(&piece).unwrap();
            std::fs::write(&path, writer.finish(7, std::slice::from_ref(&warning)).unwrap())
                .unwrap();
            let end = pieces(path.clone()).unwrap().1;
            assert_eq!((end.is_complete, end.cut), (is_complete, None), "{warning:?}");
            assert_eq!((end.warnings(), end.folded), (vec![warning], 7));
        }
    }

    #[test]
    fn a_stored_trace_is_delivered_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let accesses = vec![TraceAccess { address: 4096, store: true }];
        let piece = TracePiece::Accesses { thread: 3, accesses };
        let mut writer = TraceWriter::new(Vec::new()).unwrap();
        writer.piece(&piece).unwrap();
        let mut bytes = writer.finish(0, &[]).unwrap();

        std::fs::write(&path, &bytes).unwrap();
        let (found, end) = pieces(path.clone()).unwrap();
        assert_eq!(found, [piece]);
        assert!(end.is_complete && end.delivered == 1 && end.cut.is_none());

        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let end = pieces(path.clone()).unwrap().1;
        assert!(!end.is_complete && end.delivered == 1);
        let end_of_accesses = end.cut.unwrap();
        assert!((9..bytes.len() as u64 - 1).contains(&end_of_accesses), "{end:?}");

        // Nothing is left of its accesses.
        #[allow(clippy::cast_possible_truncation)]
        for length in [8, 9, end_of_accesses as usize - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let error = pieces(path.clone()).unwrap_err().to_string();
            let expected = "trace: block at byte 8: the file ends before its first access";
            assert!(error.ends_with(expected), "{error}");
        }

        let empty = TraceWriter::new(Vec::new()).unwrap().finish(0, &[]).unwrap();
        std::fs::write(&path, &empty).unwrap();
        let error = pieces(path.clone()).unwrap_err();
        assert!(matches!(error, TraceError::NoAccess { .. }), "{error}");

        bytes[22] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = pieces(path.clone()).unwrap_err().to_string();
        assert!(error.contains("trace: block at byte 8"), "{error}");

        std::fs::write(&path, "text").unwrap();
        let error = pieces(path).unwrap_err().to_string();
        assert!(error.ends_with("not a trace of hugepilot"), "{error}");
        let error = pieces(folder.path().join("none")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read "), "{error}");
    }
}
