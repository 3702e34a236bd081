//! Stored traces.

use std::io::BufReader;
use std::path::Path;

use hugepilot_kernel::file;
use hugepilot_record::trace::{TraceError as FormatError, TraceReader};

use super::TraceEnd;
use super::delivery::Delivery;
use crate::TraceError;

/// Delivers a stored trace. A file that was cut is delivered up to the cut.
pub(super) fn read(path: &Path, delivery: &mut Delivery<'_>) -> Result<TraceEnd, TraceError> {
    let file = file::open(path).map_err(TraceError::read(path))?;
    let damaged = |source| match source {
        FormatError::Io { source, .. } => TraceError::read(path)(source),
        source => TraceError::Damaged { path: path.to_owned(), source },
    };
    let mut reader = TraceReader::new(BufReader::new(file)).map_err(damaged)?;
    let mut is_complete = true;
    loop {
        let Some(piece) = reader.piece().map_err(damaged)? else {
            is_complete = reader.is_complete();
            break;
        };
        if delivery.piece(piece).is_break() {
            break;
        }
    }
    Ok(TraceEnd { is_complete, ..delivery.end() })
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
        let mut sink = |piece| {
            pieces.push(piece);
            ControlFlow::Continue(())
        };
        let source = TraceSource::File(path);
        let end = trace(&source, &TraceOptions::default(), &|| false, &mut sink)?;
        Ok((pieces, end))
    }

    #[test]
    fn a_stored_trace_is_delivered_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let accesses = vec![TraceAccess { address: 4096, store: true }];
        let piece = TracePiece::Accesses { thread: 3, accesses };
        let mut writer = TraceWriter::new(Vec::new()).unwrap();
        writer.piece(&piece).unwrap();
        let mut bytes = writer.finish().unwrap();

        std::fs::write(&path, &bytes).unwrap();
        let (found, end) = pieces(path.clone()).unwrap();
        assert_eq!(found, [piece]);
        assert!(end.is_complete && end.delivered == 1);

        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(!pieces(path.clone()).unwrap().1.is_complete);

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
