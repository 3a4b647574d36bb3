//! The machines of a server, and its modules.

use crate::actor::{self, Common, Hosted, Pace, WAITING};
use crate::orders::{Answer, Ask};
use crate::problem::Problem;
use crate::store::{MachineFolder, Name, check_file_name, private, remove, replace};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wavelock::{Machine, Module};
use wavelock_client::api;
use wavelock_manifest::{Overrides, Source};

/// Bytes of a page of guest memory.
const PAGE: u64 = 65_536;

/// How long a machine may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine, or a name that is being made one or deleted.
enum Slot {
    Taken,
    Hosted(Arc<Hosted>, JoinHandle<()>),
}

/// The machines.
pub(crate) struct Registry {
    folder: PathBuf,
    pub(crate) common: Arc<Common>,
    slots: Mutex<BTreeMap<String, Slot>>,
    /// One upload at a time counts against the limit of all.
    uploads: Mutex<()>,
}

impl Registry {
    /// Starts the machines of a folder.
    pub(crate) fn open(folder: &Path, common: Common) -> io::Result<Self> {
        fs::create_dir_all(folder.join("machines"))?;
        fs::create_dir_all(folder.join("modules"))?;
        let registry = Self {
            folder: folder.into(),
            common: Arc::new(common),
            slots: Mutex::default(),
            uploads: Mutex::default(),
        };
        for entry in fs::read_dir(folder.join("machines"))? {
            let entry = entry?;
            let file_name = entry.file_name();
            let Ok(name) = Name::new(file_name.to_str().unwrap_or_default()) else {
                // What was not complete, or was being deleted.
                if file_name.to_str().is_some_and(|name| name.starts_with('.')) {
                    fs::remove_dir_all(entry.path())?;
                }
                continue;
            };
            let slot = registry.host(name.as_str(), MachineFolder(entry.path()))?;
            registry.slots().insert(name.as_str().into(), slot);
        }
        Ok(registry)
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread of a machine, which makes it from its newest segment.
    fn host(&self, name: &str, folder: MachineFolder) -> io::Result<Slot> {
        let (sender, receiver) = sync_channel(WAITING);
        let hosted = Arc::new(Hosted::new(name, folder, sender, &self.common.limits));
        let (own, common) = (hosted.clone(), self.common.clone());
        let thread = std::thread::Builder::new().name(format!("machine {name}"));
        let thread = thread.spawn(move || actor::run(own, common, receiver))?;
        Ok(Slot::Hosted(hosted, thread))
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Hosted>, Problem> {
        match self.slots().get(name) {
            Some(Slot::Hosted(hosted, _)) => Ok(hosted.clone()),
            _ => Err(Problem::no_machine(name)),
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Hosted>> {
        let slots = self.slots();
        let hosted = slots.values().filter_map(|slot| match slot {
            Slot::Hosted(hosted, _) => Some(hosted.clone()),
            Slot::Taken => None,
        });
        hosted.collect()
    }

    /// Takes a name, so that nobody else makes a machine of it meanwhile.
    fn reserve(&self, name: &Name) -> Result<(), Problem> {
        let (mut slots, most) = (self.slots(), self.common.limits.machines);
        if slots.contains_key(name.as_str()) {
            return Err(Problem::conflict(format!("there is a machine `{}`", name.as_str())));
        }
        if slots.len() >= most {
            return Err(Problem::full(format!("there are {most} machines, the most allowed")));
        }
        slots.insert(name.as_str().into(), Slot::Taken);
        Ok(())
    }

    /// Makes a machine in a hidden folder, then gives it its name.
    fn make(
        &self,
        name: &str,
        make: impl FnOnce(&MachineFolder) -> Result<(), Problem>,
    ) -> Result<Arc<Hosted>, Problem> {
        let name = Name::new(name)?;
        self.reserve(&name)?;
        let machines = self.folder.join("machines");
        let (hidden, path) =
            (machines.join(format!(".new.{}", name.as_str())), machines.join(name.as_str()));
        let made = MachineFolder::make(hidden.clone())
            .map_err(|error| Problem::disk(&error))
            .and_then(|folder| make(&folder))
            .and_then(|()| {
                let made = fs::rename(&hidden, &path)
                    .and_then(|()| crate::store::sync_folder(&machines))
                    .and_then(|()| self.host(name.as_str(), MachineFolder(path)));
                made.map_err(|error| Problem::disk(&error))
            });
        let mut slots = self.slots();
        match made {
            Ok(slot) => {
                let hosted = match &slot {
                    Slot::Hosted(hosted, _) => hosted.clone(),
                    Slot::Taken => return Err(Problem::internal("a machine without a thread")),
                };
                slots.insert(name.as_str().into(), slot);
                Ok(hosted)
            }
            Err(problem) => {
                slots.remove(name.as_str());
                let _ = fs::remove_dir_all(&hidden);
                Err(problem)
            }
        }
    }

    /// Creates a machine.
    pub(crate) fn create(&self, new: &api::CreateMachine) -> Result<Arc<Hosted>, Problem> {
        let pace = self.pace(new.hz.unwrap_or(60.0), new.start)?;
        for file in new.modules.keys() {
            check_file_name(file)?;
        }
        self.make(&new.name, |folder| {
            for (file, hash) in &new.modules {
                let bytes = self.module_bytes(hash)?;
                write(&folder.modules().join(file), &bytes)?;
            }
            write(&folder.manifest(), new.manifest.as_bytes())?;
            pace.write(folder).map_err(|error| Problem::disk(&error))?;
            self.check(new, folder)?;
            let builder = Machine::builder(&self.common.engine);
            let builder = builder.manifest(&new.manifest, &folder.modules())?;
            let mut machine = builder.live(true).build()?;
            let file = private(&folder.new_segment()).map_err(|error| Problem::disk(&error))?;
            let copy = file.try_clone().map_err(|error| Problem::disk(&error))?;
            machine.journal(copy)?;
            file.sync_all()
                .and_then(|()| folder.add_segment(1, self.common.limits.segments))
                .map_err(|error| Problem::disk(&error))
        })
    }

    fn pace(&self, hz: f64, is_running: bool) -> Result<Pace, Problem> {
        let most = self.common.limits.hz;
        match hz > 0.0 && hz <= most {
            true => Ok(Pace { hz, is_running }),
            false => Err(Problem::invalid(format!("hz = {hz}: more than 0 and at most {most}"))),
        }
    }

    /// Whether a manifest stays in its folder and below the server's limits.
    fn check(&self, new: &api::CreateMachine, folder: &MachineFolder) -> Result<(), Problem> {
        let modules = folder.modules();
        let source = Source::new("manifest", &*new.manifest);
        let read = wavelock_manifest::read(source, &modules, &Overrides::default())
            .map_err(|error| Problem::refused(error.to_string()))?;
        for path in &read.manifest.modules {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            check_file_name(name)?;
            if *path != modules.join(name) {
                return Err(Problem::invalid(format!(
                    "module `{name}`: a manifest of a hosted machine names plain files, without \
                     folders"
                )));
            }
            if !new.modules.contains_key(name) {
                return Err(Problem::invalid(format!(
                    "module `{name}` is in the manifest and not in `modules`"
                )));
            }
        }
        let (machine, limits) = (&read.manifest.machine, &self.common.limits);
        let cycles = machine.frame_cycles.0.saturating_mul(u64::from(machine.lanes));
        if cycles > limits.frame_cycles {
            return Err(Problem::refused(format!(
                "a frame has {cycles} cycles on all lanes: this server allows {}",
                limits.frame_cycles
            )));
        }
        let sessions = read.manifest.sessions.len() as u64;
        if sessions > limits.sessions {
            return Err(Problem::refused(format!(
                "the machine has {sessions} sessions: this server allows {}",
                limits.sessions
            )));
        }
        let pages = read.manifest.limits.memory_pages;
        let memory = sessions.saturating_mul(pages.saturating_mul(PAGE));
        if memory > limits.machine_memory {
            return Err(Problem::refused(format!(
                "{sessions} sessions of {pages} pages may use {memory} bytes: this server allows \
                 {}; set `memory_pages` under [limits]",
                limits.machine_memory
            )));
        }
        Ok(())
    }

    /// Makes a machine from the state that `state` writes.
    pub(crate) fn fork(
        &self,
        from: &Hosted,
        fork: &api::Fork,
        state: impl FnOnce(&Path) -> Result<(), Problem>,
    ) -> Result<Arc<Hosted>, Problem> {
        let before = Pace::read(&from.folder).map_err(|error| Problem::disk(&error))?;
        let pace = self.pace(fork.hz.unwrap_or(before.hz), fork.start)?;
        self.make(&fork.name, |folder| {
            fs::copy(from.folder.manifest(), folder.manifest())
                .and_then(|_| copy_all(&from.folder.modules(), &folder.modules()))
                .map_err(|error| Problem::disk(&error))?;
            pace.write(folder).map_err(|error| Problem::disk(&error))?;
            state(&folder.new_segment())?;
            folder
                .add_segment(1, self.common.limits.segments)
                .map_err(|error| Problem::disk(&error))
        })
    }

    /// Deletes a machine.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Problem> {
        let slot = {
            let mut slots = self.slots();
            match slots.remove(name) {
                Some(Slot::Hosted(hosted, thread)) => {
                    slots.insert(name.into(), Slot::Taken);
                    (hosted, thread)
                }
                Some(Slot::Taken) => {
                    slots.insert(name.into(), Slot::Taken);
                    return Err(Problem::conflict(format!("machine `{name}` is being changed")));
                }
                None => return Err(Problem::no_machine(name)),
            }
        };
        let (hosted, thread) = slot;
        if !quit(&hosted, &thread) {
            self.slots().insert(name.into(), Slot::Hosted(hosted, thread));
            return Err(Problem::busy(format!("machine `{name}` does not end: try again")));
        }
        let trash = self.folder.join("machines").join(format!(".deleted.{name}"));
        let removed = remove(&hosted.folder.0, &trash);
        self.slots().remove(name);
        hosted.feed.wake();
        removed.map_err(|error| Problem::disk(&error))
    }

    /// Ends every machine. What they have is durable then.
    pub(crate) fn close(&self) {
        let slots = std::mem::take(&mut *self.slots());
        let hosted: Vec<_> = slots
            .into_values()
            .filter_map(|slot| match slot {
                Slot::Hosted(hosted, thread) => {
                    let _ = hosted.order(Ask::Quit);
                    Some((hosted, thread))
                }
                Slot::Taken => None,
            })
            .collect();
        for (hosted, thread) in hosted {
            quit(&hosted, &thread);
        }
    }
}

/// Whether a machine's thread ended in time. It is told again, because its queue may be full.
fn quit(hosted: &Hosted, thread: &JoinHandle<()>) -> bool {
    let began = Instant::now();
    while !thread.is_finished() {
        let _ = hosted.order(Ask::Quit);
        std::thread::sleep(Duration::from_millis(2));
        if began.elapsed() > PATIENCE {
            return false;
        }
    }
    true
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let write = || {
        let mut file = private(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| Problem::disk(&error))
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Modules.
impl Registry {
    fn module_path(&self, hash: &str) -> Result<PathBuf, Problem> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match hash.len() == 64 && hash.bytes().all(is_digit) {
            true => Ok(self.folder.join("modules").join(format!("{hash}.wasm"))),
            false => Err(Problem::invalid("a module is named by 64 hexadecimal digits")),
        }
    }

    pub(crate) fn module_bytes(&self, hash: &str) -> Result<Vec<u8>, Problem> {
        fs::read(self.module_path(hash)?).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Problem::not_found(format!("there is no module {hash}: upload it first"))
            }
            _ => Problem::disk(&error),
        })
    }

    pub(crate) fn module(&self, hash: &str) -> Result<Module, Problem> {
        Ok(self.common.engine.module(&self.module_bytes(hash)?)?)
    }

    /// Validates a module, binary or text, and keeps it.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<api::Module, Problem> {
        let module = self.common.engine.module(bytes)?;
        let hash = blake3::hash(bytes).to_hex().to_string();
        let path = self.module_path(&hash)?;
        let _one = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        if !path.exists() {
            let (most, kept) = (self.common.limits.modules, self.modules()?.bytes);
            if kept + bytes.len() as u64 > most {
                return Err(Problem::full(format!(
                    "uploaded modules have {kept} bytes and this one {}: {most} are allowed; \
                     delete some",
                    bytes.len()
                )));
            }
            replace(&path, bytes).map_err(|error| Problem::disk(&error))?;
        }
        let bytes = bytes.len() as u64;
        Ok(api::Module { hash, bytes, gap_cycles: module.gap().0 })
    }

    pub(crate) fn modules(&self) -> Result<api::Modules, Problem> {
        let list = || -> io::Result<Vec<api::Module>> {
            let mut modules = Vec::new();
            for entry in fs::read_dir(self.folder.join("modules"))? {
                let entry = entry?;
                let name = entry.file_name();
                let hash = name.to_str().and_then(|name| name.strip_suffix(".wasm"));
                if let Some(hash) = hash {
                    let bytes = entry.metadata()?.len();
                    modules.push(api::Module { hash: hash.into(), bytes, gap_cycles: 0 });
                }
            }
            modules.sort_by(|one, other| one.hash.cmp(&other.hash));
            Ok(modules)
        };
        let modules = list().map_err(|error| Problem::disk(&error))?;
        let bytes = modules.iter().map(|module| module.bytes).sum();
        Ok(api::Modules { modules, bytes, most_bytes: self.common.limits.modules })
    }

    pub(crate) fn delete_module(&self, hash: &str) -> Result<(), Problem> {
        fs::remove_file(self.module_path(hash)?).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Problem::not_found(format!("there is no module {hash}")),
            _ => Problem::disk(&error),
        })
    }
}

/// The state of a machine now, written to a file by its thread.
pub(crate) fn state_now(hosted: &Hosted, to: &Path) -> Result<(), Problem> {
    let answer = hosted.order(Ask::Export { to: to.into() })?.blocking_recv();
    match answer {
        Ok(Ok(Answer::Done)) => Ok(()),
        Ok(Ok(_)) => Err(Problem::internal("another answer than to an export")),
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err(Problem::busy(format!("machine `{}` has stopped", hosted.name))),
    }
}
