//! Ctrl-C: the first one ends the run at the next frame boundary, with its summary and whole files;
//! a second one ends the process at once.

use crate::exit::Exit;
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Handles Ctrl-C from now on. Where the host has no such signal, Ctrl-C does what it did.
    pub(super) fn install() -> Self {
        let interrupt = Self::default();
        // In this order: the first signal finds the flag still unset.
        let code = i32::from(Exit::Interrupted.code());
        let _ = flag::register_conditional_shutdown(SIGINT, code, interrupt.0.clone());
        let _ = flag::register(SIGINT, interrupt.0.clone());
        interrupt
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
