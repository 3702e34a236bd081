//! Checks of the times of a recording.

use hugepilot_units::Nanos;

use crate::exit::Exit;
use crate::failure::Failure;

/// Shortest and longest slice.
const SLICES: [Nanos; 2] = [Nanos::millis(10), Nanos::seconds(10)];

/// Fails if the recording could have no slice, or slices of a wrong length.
pub(super) fn check(every: Nanos, duration: Option<Nanos>) -> Result<(), Failure> {
    let [shortest, longest] = SLICES;
    let failed = || format!("--every {every} is not {shortest} to {longest}");
    let (failed, cause, help) = match every {
        _ if every < shortest => {
            (failed(), "the reads of shorter slices slow the target down", "--every 100ms")
        }
        _ if every > longest => {
            (failed(), "longer slices hide the phases of the target", "--every 100ms")
        }
        _ if duration == Some(Nanos::ZERO) => {
            let failed = "nothing to record: --duration is 0".to_owned();
            (failed, "", "--duration 30s, or omit the flag")
        }
        _ => return Ok(()),
    };
    let help = format!("name a time, such as {help}");
    Err(Failure::new(failed, Exit::Error).because(cause).with_help([help]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_a_range_with_its_cause() {
        let error = |every| check(every, None).err().map(|failure| failure.to_string());
        let short = "--every 1ns is not 10ms to 10s: the reads of shorter slices slow";
        assert!(error(Nanos::new(1)).unwrap().starts_with(short), "{:?}", error(Nanos::new(1)));
        assert!(error(Nanos::seconds(11)).unwrap().contains(": longer slices hide"));
        assert_eq!(SLICES.map(error), [None, None]);
    }
}
