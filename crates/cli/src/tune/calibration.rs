//! The calibration kept for this machine.

use std::path::PathBuf;

use hugepilot_kernel::Root;
use hugepilot_profiler::calibrate::Measured;

use super::args::CalibrationMode;
use crate::output::Progress;

/// The kept calibration of this machine, or a new one. `None` when none is wanted or none can be made; then nothing is
/// predicted, which the report says.
pub(crate) fn get(
    mode: CalibrationMode,
    progress: &Progress,
    interrupted: impl Fn() -> bool,
) -> Option<Measured> {
    if mode == CalibrationMode::Off {
        // What sampling costs the target is always told; that takes half a second.
        let sample_cost_ns = hugepilot_profiler::sample_cost().ok()?;
        return Some(Measured { machine: String::new(), points: Vec::new(), sample_cost_ns });
    }
    let path = path();
    let machine = Measured::machine(&Root::live());
    let kept = path.as_ref().and_then(|path| Measured::load(path, &machine));
    if kept.is_some() && mode == CalibrationMode::Auto {
        return kept;
    }
    progress.keep("measuring what huge pages save on this machine (a few seconds, once)");
    let measured = Measured::measure(|hot| progress.now(format!("calibrating at {hot}"))).ok()?;
    if let Some(path) = path.filter(|_| !interrupted()) {
        let _ = measured.save(&path);
    }
    Some(measured)
}

/// `$XDG_CACHE_HOME/hugepilot/calibration.json`, by default under `~/.cache`.
fn path() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(home)?;
    Some(cache.join("hugepilot").join("calibration.json"))
}
