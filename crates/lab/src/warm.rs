//! Touches memory once, so that a hypervisor backs it.

use std::path::Path;
use std::time::Instant;

use hugepilot_kernel::{OwnMemory, Root, memory};
use hugepilot_reports::lab::weather::{WARM_SCHEMA, WarmReport, WeatherRefusal};
use hugepilot_units::Bytes;

use crate::holder::Holder;
use crate::pressure::{FLOOR, STEP};
use crate::{LabError, Result};

/// Touches `size` of memory, or all that is safe, frees it, and touches it again. The second time
/// shows what the kernel itself needs. `executable`: see [`crate::holder`]. Ends early, with less
/// memory, when less than 1 GiB is available.
///
/// # Errors
/// [`LabError::Refused`] beyond the memory that hugepilot may take; [`LabError::Interrupted`].
pub fn warm(
    size: Option<Bytes>,
    executable: &Path,
    stopped: &dyn Fn() -> bool,
) -> Result<WarmReport> {
    let room_bytes = OwnMemory::read(&Root::live()).room();
    let requested_bytes = size.unwrap_or(room_bytes);
    if requested_bytes > room_bytes {
        let wanted_bytes = requested_bytes;
        return Err(LabError::Refused(WeatherRefusal::NoRoom { wanted_bytes, room_bytes }));
    }
    let (touched_bytes, first) = touch(requested_bytes, executable, stopped)?;
    let (_, second) = touch(touched_bytes, executable, stopped)?;
    Ok(WarmReport {
        schema: WARM_SCHEMA.to_owned(),
        requested_bytes,
        touched_bytes,
        first_touch_seconds: first,
        second_touch_seconds: second,
        first_over_second_ratio: first / second.max(1e-9),
    })
}

/// Touches at most `size`, and frees it. Returns how much, and the seconds.
fn touch(size: Bytes, executable: &Path, stopped: &dyn Fn() -> bool) -> Result<(Bytes, f64)> {
    let mut holder = Holder::start(executable)?;
    let began = Instant::now();
    let mut touched = Bytes::ZERO;
    while touched < size {
        if stopped() {
            return Err(LabError::Interrupted);
        }
        if memory::mem_info(&Root::live())?.available < FLOOR + STEP {
            break;
        }
        let step = STEP.min(size - touched);
        holder.ask(&format!("lock {}", step.get()))?;
        touched += step;
    }
    Ok((touched, began.elapsed().as_secs_f64()))
}
