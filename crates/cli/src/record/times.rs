//! Checks of the times of a recording.

use hugepilot_units::Nanos;

use crate::exit::Exit;
use crate::failure::Failure;

/// Shortest and longest slice.
const SLICES: [Nanos; 2] = [Nanos::millis(10), Nanos::seconds(10)];

/// Fails if the recording could have no slice, or slices of a wrong length.
pub(super) fn check(every: Nanos, duration: Option<Nanos>) -> Result<(), Failure> {
    let [shortest, longest] = SLICES;
    let cause = match every {
        _ if every < shortest => "the reads of shorter slices slow the target down",
        _ if every > longest => "longer slices hide the phases of the target",
        _ if duration == Some(Nanos::ZERO) => {
            let failure = Failure::new("nothing to record: --duration is 0", Exit::Error);
            let help = "name a time, such as --duration 30s, or omit the flag";
            return Err(failure.with_help([help.to_owned()]));
        }
        _ => return Ok(()),
    };
    let failed = format!("--every {every} is not between {shortest} and {longest}");
    let help = "name a time, such as --every 100ms".to_owned();
    Err(Failure::new(failed, Exit::Error).because(cause).with_help([help]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_has_a_range_with_its_cause() {
        let error = |every| check(every, None).err().map(|failure| failure.to_string());
        let short = "--every 1ns is not between 10ms and 10s: the reads of shorter slices slow";
        assert!(error(Nanos::new(1)).unwrap().starts_with(short), "{:?}", error(Nanos::new(1)));
        assert!(error(Nanos::seconds(11)).unwrap().contains(": longer slices hide"));
        assert_eq!(SLICES.map(error), [None, None]);
    }
}
