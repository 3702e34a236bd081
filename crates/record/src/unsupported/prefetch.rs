//! Reasons why hardware prefetchers cannot be read or set.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason why hardware prefetchers cannot be read or set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PrefetchUnsupported {
    /// The processor has no documented register that controls prefetchers.
    #[error(
        "no known register controls the prefetchers of this processor ({vendor}, family {family}, \
         model {model})"
    )]
    UnknownProcessor {
        /// Vendor.
        vendor: String,
        /// Family.
        family: u32,
        /// Model.
        model: u32,
    },
    /// The kernel has no device for model-specific registers.
    #[error("this kernel has no device for model-specific registers: {path} does not exist")]
    NoDevice {
        /// Path of the device.
        path: String,
        /// Whether this is a virtual machine.
        hypervisor: bool,
    },
    /// Kernel lockdown forbids access to model-specific registers.
    #[error("kernel lockdown ({mode}) forbids model-specific registers: {error}")]
    Lockdown {
        /// Mode of the lockdown.
        mode: String,
        /// Failed access.
        error: String,
    },
    /// The processor, or the hypervisor in its place, rejects the register.
    #[error("the {} rejects the register: {error}", rejecter(*hypervisor))]
    RegisterRejected {
        /// Whether this is a virtual machine.
        hypervisor: bool,
        /// Failed access.
        error: String,
    },
    /// The user may not access the register.
    #[error("only root may access model-specific registers: {error}")]
    RegisterForbidden {
        /// Failed access.
        error: String,
    },
}

const fn rejecter(hypervisor: bool) -> &'static str {
    if hypervisor { "hypervisor" } else { "processor" }
}

impl PrefetchUnsupported {
    pub(super) const fn help(&self) -> &'static str {
        match self {
            Self::UnknownProcessor { .. } => {
                "use a setting of the firmware, if it has one for prefetchers"
            }
            Self::NoDevice { hypervisor: false, .. } => "sudo modprobe msr",
            Self::NoDevice { hypervisor: true, .. } => {
                "sudo modprobe msr; a hypervisor usually rejects the register, so run on the host"
            }
            Self::Lockdown { .. } => {
                "boot without Secure Boot, or without the kernel parameter lockdown="
            }
            Self::RegisterRejected { hypervisor: true, .. } => "run hugepilot on the host",
            Self::RegisterRejected { hypervisor: false, .. } => {
                "look for a setting of the firmware that locks prefetchers"
            }
            Self::RegisterForbidden { .. } => {
                "run as root; if root is refused, boot with msr.allow_writes=on"
            }
        }
    }
}
