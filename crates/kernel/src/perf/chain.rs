//! Call chain of a sample, as the kernel walks it by frame pointers.
//!
//! The kernel follows the frame pointer of the sampled thread and reads a return address at each
//! frame. In code without frame pointers that register holds anything, so a chain may be short or
//! lead through addresses that are not code. Callers of this module decide which of them are.

use hugepilot_units::VirtAddr;
use perf_event_open_sys::bindings::PERF_CONTEXT_USER;

use crate::Root;

/// Frames of a chain at most, the sampled instruction included.
const MAX_FRAMES: u16 = 64;
/// Addresses of user code. The markers of a chain are far above them.
const USER_CODE: std::ops::Range<u64> = 0x1_0000..1 << 56;

/// Addresses of a chain, in the bytes of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallChain<'a>(pub(super) &'a [u8]);

impl<'a> CallChain<'a> {
    /// Returns the return addresses of the callers, the nearest first, at most 63. Ends at the
    /// first value that cannot be one.
    pub fn callers(self) -> impl Iterator<Item = VirtAddr> + use<'a> {
        let (words, _) = self.0.as_chunks();
        words
            .iter()
            .map(|word| u64::from_ne_bytes(*word))
            .skip_while(|&word| word != PERF_CONTEXT_USER)
            .skip(1)
            .take(usize::from(MAX_FRAMES))
            .take_while(|word| USER_CODE.contains(word))
            // The sampled instruction.
            .skip(1)
            .map(VirtAddr::new)
    }
}

/// Returns the frames to ask the kernel for: it rejects more than its own limit.
pub(super) fn max_frames(root: &Root) -> u16 {
    let limit = root.read_text("proc/sys/kernel/perf_event_max_stack").ok();
    limit.and_then(|text| text.parse().ok()).unwrap_or(MAX_FRAMES).min(MAX_FRAMES)
}

#[cfg(test)]
mod tests {
    use perf_event_open_sys::bindings::PERF_CONTEXT_KERNEL;

    use super::*;
    use crate::root::fixture;

    fn callers(words: &[u64]) -> Vec<u64> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        CallChain(&bytes).callers().map(VirtAddr::get).collect()
    }

    #[test]
    fn the_callers_follow_the_sampled_instruction_in_user_mode() {
        let user = PERF_CONTEXT_USER;
        assert_eq!(callers(&[user, 0x40_1000, 0x40_2000, 0x40_3000]), [0x40_2000, 0x40_3000]);
        let with_kernel = [PERF_CONTEXT_KERNEL, u64::MAX << 40, user, 0x40_1000, 0x40_2000];
        assert_eq!(callers(&with_kernel), [0x40_2000]);
        assert_eq!(callers(&[user, 0x40_1000]), [0; 0]);
    }

    #[test]
    fn a_chain_ends_at_a_value_that_is_no_return_address() {
        let user = PERF_CONTEXT_USER;
        for bad in [0, 1, PERF_CONTEXT_KERNEL, user, u64::MAX, 1 << 63] {
            assert_eq!(callers(&[user, 0x40_1000, 0x40_2000, bad, 0x40_3000]), [0x40_2000]);
            assert_eq!(callers(&[user, bad, 0x40_2000]), [0; 0], "{bad:#x}");
        }
        for words in [&[][..], &[user], &[0x40_1000, 0x40_2000], &[0; 9]] {
            assert_eq!(callers(words), [0; 0], "{words:?}");
        }
        let deep: Vec<u64> = std::iter::once(user).chain(0x40_0000..0x40_0800).collect();
        assert_eq!(callers(&deep).len(), usize::from(MAX_FRAMES) - 1);
    }

    #[test]
    fn the_kernel_s_limit_holds_if_it_is_lower() {
        let limit = |text: &str| {
            let (_folder, root) = fixture(&[("proc/sys/kernel/perf_event_max_stack", text)]);
            max_frames(&root)
        };
        assert_eq!(
            [limit("127\n"), limit("16\n"), limit("70000\n"), limit("x\n")],
            [64, 16, 64, 64]
        );
        assert_eq!(max_frames(&Root::at("/nowhere")), MAX_FRAMES);
    }
}
