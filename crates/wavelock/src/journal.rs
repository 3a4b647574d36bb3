//! Machines that lose nothing: a journal has each input before its frame has run, and a machine is
//! made again from it, as it was when the process ended.

use crate::engine::Engine;
use crate::error::Error;
use crate::frames::Ended;
use crate::machine::Machine;
use crate::report::FrameReport;
use std::io::{Read, Seek, Write};
use wavelock_abi::Frame;
use wavelock_replay::{Archive, Journal, RecordedMachine};
use wavelock_system::{Input, World};

/// A journal, and the error that ended it.
#[derive(Default)]
pub(crate) struct Kept {
    journal: Option<Journal>,
    has_failed: bool,
}

impl Kept {
    pub(crate) const fn is_on(&self) -> bool {
        self.journal.is_some() || self.has_failed
    }

    pub(crate) const fn check(&self) -> Result<(), Error> {
        if self.has_failed { Err(Error::JournalFailed) } else { Ok(()) }
    }

    fn write<R>(
        &mut self,
        write: impl FnOnce(&mut Journal) -> std::io::Result<R>,
    ) -> Result<Option<R>, Error> {
        self.check()?;
        let Some(journal) = &mut self.journal else { return Ok(None) };
        match write(journal) {
            Ok(written) => Ok(Some(written)),
            Err(error) => {
                (self.journal, self.has_failed) = (None, true);
                Err(error.into())
            }
        }
    }

    pub(crate) fn input(&mut self, frame: Frame, input: Input) -> Result<(), Error> {
        self.write(|journal| journal.input(frame, input)).map(drop)
    }

    /// A frame that has ended.
    pub(crate) fn frame(&mut self, ended: &Ended) -> Result<(), Error> {
        for ran in ended.collected.frames() {
            for input in ran.answers() {
                self.input(ran.frame(), input.clone())?;
            }
            self.write(|journal| journal.frame(ran.frame(), ran.digest()))?;
        }
        Ok(())
    }
}

/// Journals.
impl Machine {
    /// Writes a trace from here on that has each input as soon as [`Machine::flush_journal`] is
    /// called, before its frame has run, and each frame before [`Machine::advance`] returns. So a
    /// process that is killed loses nothing it has flushed: [`Machine::recover`]. Whether it is on
    /// the disk is up to `out`. A journal that was being written before is ended.
    ///
    /// If the journal cannot be written, `advance` and all inputs are refused from then on: the
    /// machine is made again from what the file has.
    ///
    /// # Errors
    /// [`Error::InFrame`], [`Error::Over`], [`Error::Io`]; [`Error::JournalRollback`] for a machine
    /// made with [`MachineBuilder::rollback`](crate::MachineBuilder::rollback).
    pub fn journal(&mut self, out: impl Write + Send + 'static) -> Result<(), Error> {
        self.check_boundary()?;
        if self.outcome().is_some() {
            return Err(Error::Over);
        }
        if self.rollback > 0 {
            return Err(Error::JournalRollback);
        }
        let machine = self.description();
        let world = self.waves.world_mut();
        let journal = Journal::begin(Box::new(out), &machine, world)?;
        let before = self.kept.journal.replace(journal);
        self.frames.keep_digests();
        if let Some(before) = before {
            // The new one has everything; the end of the old one is a courtesy to its readers.
            let _ = before.finish(&self.waves.world_mut().summary());
        }
        Ok(())
    }

    /// Writes the inputs that were given, and how far time has passed. Does nothing without a
    /// journal.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::JournalFailed`] after it.
    pub fn flush_journal(&mut self) -> Result<(), Error> {
        let next = self.waves.world().next_frame_number();
        self.kept.write(|journal| journal.flush(next)).map(drop)
    }

    /// Bytes of the journal so far; 0 without one.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        self.kept.journal.as_ref().map_or(0, Journal::written)
    }

    /// Writes the end of the journal.
    ///
    /// # Errors
    /// As [`Machine::flush_journal`], and [`Error::InFrame`].
    pub fn finish_journal(&mut self) -> Result<(), Error> {
        self.check_boundary()?;
        self.flush_journal()?;
        let summary = self.waves.world_mut().summary();
        match self.kept.journal.take() {
            Some(journal) => Ok(journal.finish(&summary)?),
            None => Ok(()),
        }
    }

    /// The machine that a journal, complete or cut off anywhere, was written of, as it was then:
    /// restored from the last state in the file, with the frames since then run again and shown to
    /// `again`, and with the inputs that wait for their frames.
    ///
    /// # Errors
    /// The file is none or is damaged; [`Error::Diverged`] if this build computes something else;
    /// [`Error::Host`].
    pub fn recover(
        engine: &Engine,
        file: impl Read + Seek,
        mut again: impl FnMut(&FrameReport<'_>),
    ) -> Result<Self, Error> {
        let mut archive = Archive::open(file)?;
        let newest = archive.last_snapshot(|_| true)?;
        let mut modules = Vec::new();
        for bytes in &archive.machine.modules {
            modules.push(engine.module(bytes)?);
        }
        let world = match newest {
            Some(number) => archive.restore(number, false)?,
            None => {
                let RecordedMachine { spec, inputs, .. } = archive.machine.clone();
                let mut world = World::load(spec, inputs, false)?.world;
                archive.feed(&mut world)?;
                world
            }
        };
        let mut machine = Self::start(engine, world, modules, 0, false, Vec::new(), None);
        machine.frames.keep_digests();
        let last = archive.last_frame().filter(|(frame, _)| *frame >= machine.frame());
        let mut found = None;
        while machine.frame() < archive.end() && machine.outcome().is_none() {
            machine.advance()?;
            let ran = machine.last.collected.frames().last();
            found = ran.map(|ran| (ran.frame(), ran.digest())).or(found);
            again(&machine.last.report());
        }
        match last {
            Some((frame, expected)) if found != last => {
                let found = found.map_or_else(|| machine.digest(), |(_, digest)| digest);
                Err(Error::Diverged { frame, found, expected })
            }
            _ => Ok(machine),
        }
    }
}
