//! The first chunk of a trace: everything needed to run the machine again, including modules and
//! inputs.

use crate::live::KnownModules;
use std::fmt;
use std::sync::Arc;
use wavelock_abi::{Frame, SessionId};
use wavelock_module::{LoadError, Module};
use wavelock_system::{InputEvent, LaterModule, MachineSpec, Recipient, SpecError};

/// A machine as a trace stores it.
#[derive(Clone, Debug)]
pub struct RecordedMachine {
    /// Its description.
    pub spec: MachineSpec,
    /// The bytes of its modules, in order; those of sessions that were started later are in the
    /// description's library.
    pub modules: Vec<Vec<u8>>,
    /// Its inputs, in frame order.
    pub inputs: Vec<InputEvent>,
}

/// Why a trace's machine cannot be run.
#[derive(Debug)]
pub enum MachineError {
    /// The bytes are malformed.
    Malformed {
        /// The offset in the chunk.
        offset: usize,
    },
    /// The machine's description is not one this build can run.
    Spec(SpecError),
    /// A module of a session that was started later does not load.
    LaterModule {
        /// The reason.
        error: LoadError,
    },
    /// A module does not load.
    Module {
        /// Its number.
        module: usize,
        /// The reason.
        error: LoadError,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { offset } => {
                write!(f, "byte {offset} of the machine chunk is malformed")
            }
            Self::Spec(error) => error.fmt(f),
            Self::LaterModule { error } => {
                write!(f, "a module that an input of the trace brings cannot be loaded: {error}")
            }
            Self::Module { module, error } => {
                write!(f, "module {module} of the trace cannot be loaded: {error}")
            }
        }
    }
}

impl std::error::Error for MachineError {}

impl RecordedMachine {
    /// The chunk's payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, &self.spec.identity());
        put_number(&mut out, self.modules.len() as u64);
        self.modules.iter().for_each(|module| put_bytes(&mut out, module));
        put_number(&mut out, self.inputs.len() as u64);
        for event in &self.inputs {
            put_number(&mut out, event.frame.0);
            put_number(&mut out, crate::live::recipient_code(event.recipient));
            put_bytes(&mut out, &event.bytes);
        }
        if !self.spec.library.is_empty() {
            put_number(&mut out, self.spec.library.len() as u64);
            self.spec.library.iter().for_each(|module| put_bytes(&mut out, module.bytes()));
        }
        out
    }

    /// The payload of a trace's first chunk.
    pub(crate) fn first_chunk(&self, level: crate::record::Level) -> Vec<u8> {
        let mut first = vec![level as u8];
        first.extend_from_slice(&self.encode());
        first
    }

    /// Reads the chunk's payload and loads the modules.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn decode(payload: &[u8]) -> Result<Self, MachineError> {
        let mut input = Reader { bytes: payload, offset: 0 };
        let identity = input.bytes()?;
        let count = input.count()?;
        let modules: Vec<Vec<u8>> =
            (0..count).map(|_| input.bytes().map(Vec::from)).collect::<Result<_, _>>()?;
        let mut loaded = Vec::with_capacity(modules.len());
        for (module, bytes) in modules.iter().enumerate() {
            let parsed = Module::new(bytes, &wavelock_module::Limits::default())
                .map_err(|error| MachineError::Module { module, error })?;
            loaded.push((Arc::new(parsed), *blake3::hash(bytes).as_bytes()));
        }
        let spec = MachineSpec::from_identity(identity, loaded).map_err(MachineError::Spec)?;
        let count = input.count()?;
        let mut inputs = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = input.offset;
            let frame = Frame(input.number()?);
            let recipient = match input.number()? {
                u64::MAX => Recipient::All,
                session if (session as usize) < spec.sessions.len() => {
                    Recipient::Session(SessionId(session as u32))
                }
                _ => return Err(MachineError::Malformed { offset }),
            };
            inputs.push(InputEvent { frame, recipient, bytes: input.bytes()?.into() });
        }
        let mut machine = Self { spec, modules, inputs };
        if input.offset != payload.len() {
            for _ in 0..input.count()? {
                machine.add_module(input.bytes()?)?;
            }
        }
        if input.offset != payload.len() {
            return Err(MachineError::Malformed { offset: input.offset });
        }
        Ok(machine)
    }

    /// Adds a module of a session that is started later, unless it is there.
    pub(crate) fn add_module(&mut self, bytes: &[u8]) -> Result<LaterModule, MachineError> {
        if let Some(known) = self.find_module(words_of(blake3::hash(bytes).as_bytes())) {
            return Ok(known);
        }
        let module = Module::new(bytes, &wavelock_module::Limits::default())
            .map_err(|error| MachineError::LaterModule { error })?;
        let module = LaterModule::new(Arc::new(module), bytes.into());
        self.spec.library.push(module.clone());
        Ok(module)
    }

    /// The module of a hash: one that the machine was loaded with, or of its library.
    pub(crate) fn find_module(&self, hash: [u64; 4]) -> Option<LaterModule> {
        let hashes = self.spec.module_hashes.iter().map(words_of);
        let mut loaded = hashes.zip(self.spec.modules.iter().zip(&self.modules));
        if let Some((_, (module, bytes))) = loaded.find(|(known, _)| *known == hash) {
            return Some(LaterModule::new(module.clone(), bytes.as_slice().into()));
        }
        self.spec.library.iter().find(|module| words_of(module.hash()) == hash).cloned()
    }

    /// The hashes of all of its modules.
    pub(crate) fn known_modules(&self) -> KnownModules {
        let loaded = self.modules.iter().map(|bytes| *blake3::hash(bytes).as_bytes());
        loaded.chain(self.spec.library.iter().map(|module| *module.hash())).collect()
    }
}

/// A hash as four numbers.
pub(crate) fn words_of(hash: &[u8; 32]) -> [u64; 4] {
    std::array::from_fn(|word| {
        u64::from_le_bytes(std::array::from_fn(|byte| hash[8 * word + byte]))
    })
}

pub(crate) fn put_number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn malformed(&self) -> MachineError {
        MachineError::Malformed { offset: self.offset }
    }

    pub(crate) fn number(&mut self) -> Result<u64, MachineError> {
        let bytes = self.bytes.get(self.offset..self.offset + 8).ok_or(self.malformed())?;
        self.offset += 8;
        Ok(u64::from_le_bytes(std::array::from_fn(|at| bytes[at])))
    }

    /// The number of items that follow. Each takes at least eight bytes, so the remaining length
    /// bounds the count.
    pub(crate) fn count(&mut self) -> Result<usize, MachineError> {
        let error = self.malformed();
        let count = self.number()?;
        if count > ((self.bytes.len() - self.offset) / 8) as u64 {
            Err(error)
        } else {
            Ok(count as usize)
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], MachineError> {
        let error = self.malformed();
        let length = self.number()?;
        let rest = &self.bytes[self.offset..];
        if length > rest.len() as u64 {
            return Err(error);
        }
        self.offset += length as usize;
        Ok(&rest[..length as usize])
    }
}
