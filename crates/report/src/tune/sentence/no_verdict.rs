//! Why a tune has no verdict.

use hugepilot_record::tune::NoVerdict;

use super::percent;
use crate::sentence::Sentence;
use crate::table::counted;

impl Sentence for NoVerdict {
    fn text(&self) -> String {
        match self {
            Self::TargetStopped { .. } => {
                "no samples: the process is stopped, by SIGSTOP or a debugger".to_owned()
            }
            Self::TargetIdle => "no samples: the process did not run in user mode, because it was \
                                 idle or busy in the kernel"
                .to_owned(),
            Self::EndedTooSoon => "no samples: the program ended too soon".to_owned(),
            Self::FewSamples { samples, required_samples } => format!(
                "{}, and a decision requires {required_samples}: the process hardly ran in user \
                 mode",
                counted(*samples, "sample", "samples")
            ),
            Self::TooShort { sampled_seconds, required_seconds } => format!(
                "the time was too short for a measurement: {sampled_seconds:.2} s of sampling, and \
                 a first decision requires {required_seconds:.2} s"
            ),
            Self::ShortLived { processes, longest_seconds, required_seconds } => format!(
                "too short-lived: no process ran until its first decision, {required_seconds:.2} s \
                 after its first sample: {} sampled, for at most {longest_seconds:.2} s",
                counted(*processes, "process was", "processes were")
            ),
            Self::Undecided { samples, longest_seconds } => format!(
                "{} in {longest_seconds:.2} s did not suffice for a decision: the process hardly \
                 ran in user mode, or few of its samples have an address",
                counted(*samples, "sample", "samples")
            ),
            Self::Code32Bit { undecoded_ratio } => format!(
                "{} of the samples have no address: the process runs 32-bit code, which the \
                 sampler does not decode",
                percent(*undecoded_ratio)
            ),
            Self::CodeNotDecoded { undecoded_ratio } => format!(
                "{} of the samples have no address: their code could not be read or decoded, such \
                 as code made at run time (JIT)",
                percent(*undecoded_ratio)
            ),
            Self::AddressesUnresolved { unresolved_ratio } => format!(
                "{} of the samples are at memory accesses whose address the registers do not \
                 give: a load overwrote its own address register, or the address is in vector \
                 registers or relative to a segment",
                percent(*unresolved_ratio)
            ),
            Self::KvmGuest => "the process runs a virtual machine, and samples do not show what \
                               stalls inside"
                .to_owned(),
            Self::Excluded(cause) => cause.text(),
        }
    }

    fn help(&self) -> Vec<String> {
        let help = match self {
            Self::Excluded(cause) => return cause.help(),
            Self::TargetStopped { pid } => return vec![format!("continue it: kill -CONT {pid}")],
            Self::TargetIdle => &["sample while it works, or longer: --observe 30s"][..],
            Self::FewSamples { .. } | Self::Undecided { .. } => &[
                "sample while it works, or longer: --observe 30s",
                "sample more often: --rate 5000",
            ][..],
            Self::TooShort { required_seconds, .. } => {
                // Twice the time of the decision leaves time to act on it.
                let seconds = (2.0 * required_seconds).max(15.0).ceil();
                // The first decision comes after the first observation, however short that is.
                let observe = (required_seconds + 0.5).ceil();
                let more = "give a short program more work".to_owned();
                let time = format!("give it more time: --for {seconds}s --observe {observe}s");
                return vec![time, more];
            }
            Self::ShortLived { .. } => &[
                "place its memory from the start: sudo hugepilot run --pages thp -- CMD",
                "find the mode that pays: hugepilot compare -- CMD",
                "or decide earlier: --observe 200ms --rate 2000",
            ][..],
            // The obstacle has the help.
            Self::KvmGuest => &[][..],
            Self::EndedTooSoon => {
                &["give the program more work", "sample more often: --rate 5000"][..]
            }
            Self::Code32Bit { .. } => &["run a 64-bit build of the program"][..],
            Self::CodeNotDecoded { .. } => {
                &["let hugepilot read the code: run it as root, or grant CAP_SYS_PTRACE"][..]
            }
            Self::AddressesUnresolved { .. } => &[
                "compare whole runs, which requires no addresses: hugepilot compare -- CMD",
                "promote all its memory, and measure the gain by a metric of the program: \
                 hugepilot tune --policy all --progress-regex REGEX -- CMD",
            ][..],
        };
        help.iter().map(|&help| help.to_owned()).collect()
    }
}
