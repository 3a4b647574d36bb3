//! A folder whose modules are sessions: a file that is put there starts one, a changed file
//! replaces it, a removed file ends it.
//!
//! ```text
//!   a look at the folder, every 250 ms ─▶ what has come to rest ─▶ load ─▶ Inbox ─▶ the run
//! ```
//!
//! Contract: a file counts when two looks found it the same, so that one that is being written is
//! not read; it is gone when two looks did not find it. A file that cannot be a session is noted
//! once for each of its versions and changes nothing: the session of its last good version
//! continues. Whatever the folder has, a look takes bounded work, on a thread of its own. A
//! recording has each change as an input of its frame and needs no folder.

use super::inbox::{Inbox, Message, WATCH};
use super::modules::{Modules, Stamp};
use super::request::{Request, shown};
use crate::manifest::{grouped, name_refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use wavelock_system::LaterModule;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Files that are watched.
const MOST_FILES: usize = 1_024;

/// Entries of the folder, of any kind.
const MOST_ENTRIES: usize = 4_096;

/// A change of the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// The name of the session.
    pub(crate) name: String,
    /// Its module from now on; `None` if its file is gone.
    pub(crate) module: Option<LaterModule>,
}

impl Change {
    pub(crate) fn size(&self) -> usize {
        self.name.len() + self.module.as_ref().map_or(0, |module| module.bytes().len())
    }
}

/// The folder as the last looks found it.
pub(crate) struct Watch {
    modules: Arc<Modules>,
    files: BTreeMap<String, Watched>,
    /// What the folder itself was last told for.
    told: Option<String>,
}

/// A file.
struct Watched {
    stamp: Option<Stamp>,
    /// This version was looked at twice, and loaded or told.
    is_done: bool,
    /// The module that its session was started or replaced with.
    module: Option<[u8; 32]>,
    /// The last look did not find it.
    is_missing: bool,
}

/// What a look found.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Found {
    Change(Change),
    /// A file or the folder that is skipped, and why.
    Skipped(String),
}

impl Watch {
    pub(crate) fn new(modules: Arc<Modules>) -> Self {
        Self { modules, files: BTreeMap::new(), told: None }
    }

    /// Looks at the folder on a thread of its own until the run is over.
    pub(crate) fn start(mut self, inbox: Inbox) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("wavelock-watch".into());
        thread.spawn(move || {
            while !inbox.is_closed() {
                // What is found waits for room in the queue, one at a time.
                let wanted = self.look(&mut |found| {
                    let message = match found {
                        Found::Change(change) => Message::Request(0, Request::Watched(change)),
                        Found::Skipped(reason) => Message::Refused(0, reason),
                    };
                    inbox.push(WATCH, message)
                });
                if !wanted {
                    return;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        })?;
        Ok(())
    }

    /// Shows what has changed since the last look, until `see` wants no more.
    fn look(&mut self, see: &mut dyn FnMut(Found) -> bool) -> bool {
        let names = match self.list() {
            Ok(names) => names,
            // The sessions continue: a folder that cannot be read says nothing about them.
            Err(reason) => return self.tell(Some(reason), see),
        };
        let gone = self.forget(&names);
        let (known, new): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| self.files.contains_key(*name));
        let room = MOST_FILES.saturating_sub(self.files.len());
        let reason = (new.len() > room).then(|| {
            let (most, folder) = (grouped(MOST_FILES as u64), self.modules.folder().display());
            format!("`{folder}` has more than {most} modules: the others wait")
        });
        let mut wanted = self.tell(reason, see);
        for name in gone {
            let change = Change { name: stem(&name).to_owned(), module: None };
            wanted = wanted && see(Found::Change(change));
        }
        for name in known.into_iter().chain(new.into_iter().take(room)) {
            let found = self.look_at(name);
            wanted = wanted && found.is_none_or(&mut *see);
        }
        wanted
    }

    /// Tells what is wrong with the folder itself, once.
    fn tell(&mut self, reason: Option<String>, see: &mut dyn FnMut(Found) -> bool) -> bool {
        let is_known = self.told == reason;
        self.told.clone_from(&reason);
        is_known || reason.is_none_or(|reason| see(Found::Skipped(reason)))
    }

    /// The names of the modules in the folder, in order.
    fn list(&self) -> Result<BTreeSet<String>, String> {
        let folder = self.modules.folder();
        let unreadable = |error: io::Error| format!("`{}`: {error}", folder.display());
        let mut names = BTreeSet::new();
        for (number, entry) in folder.read_dir().map_err(unreadable)?.enumerate() {
            if number >= MOST_ENTRIES {
                let (most, folder) = (grouped(MOST_ENTRIES as u64), folder.display());
                return Err(format!(
                    "`{folder}` has more than {most} entries: nothing of it is taken until it has \
                     fewer"
                ));
            }
            let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
            // Programs that write a file in parts hide it until it is whole.
            let is_module = name.ends_with(".wasm") || name.ends_with(".wat");
            if is_module && !name.starts_with('.') {
                names.insert(name);
            }
        }
        Ok(names)
    }

    /// Forgets files that two looks did not find, and returns those that had a session.
    fn forget(&mut self, names: &BTreeSet<String>) -> Vec<String> {
        let mut gone = Vec::new();
        self.files.retain(|name, file| {
            let was_missing = std::mem::replace(&mut file.is_missing, !names.contains(name));
            let stays = !(was_missing && file.is_missing);
            if !stays && file.module.is_some() {
                gone.push(name.clone());
            }
            stays
        });
        for name in &gone {
            // Another file of this name can have the session now.
            let others = self.files.iter_mut().filter(|(other, _)| stem(other) == stem(name));
            others.for_each(|(_, file)| file.is_done &= file.module.is_some());
        }
        gone
    }

    fn look_at(&mut self, name: &str) -> Option<Found> {
        let stamp = match Stamp::of(&self.modules.folder().join(name)) {
            // Gone since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            stamp => stamp.map_err(|error| error.to_string()),
        };
        let file = self.files.entry(name.to_owned()).or_insert(Watched {
            stamp: None,
            is_done: false,
            module: None,
            is_missing: false,
        });
        let now = stamp.as_ref().ok().copied();
        let is_at_rest = stamp.is_err() || file.stamp == now;
        if !is_at_rest || file.is_done && file.stamp == now {
            file.is_done &= file.stamp == now;
            file.stamp = now;
            return None;
        }
        (file.stamp, file.is_done) = (now, true);
        match stamp.and_then(|_| self.load(name)) {
            Ok(change) => change.map(Found::Change),
            Err(reason) => Some(Found::Skipped(format!("{}: {reason}", shown(name)))),
        }
    }

    /// The change that a new version of a file is; `None` if it is the module that runs.
    fn load(&mut self, name: &str) -> Result<Option<Change>, String> {
        let session = stem(name);
        if let Some(reason) = name_refusal(session) {
            return Err(format!("the name of the file names its session; {reason}"));
        }
        let mut others = self.files.iter().filter(|(other, _)| *other != name);
        if let Some((other, _)) =
            others.find(|(other, file)| stem(other) == session && file.module.is_some())
        {
            return Err(format!("session `{session}` has the module of {}", shown(other)));
        }
        let module = self.modules.load(name)?;
        let Some(file) = self.files.get_mut(name) else { return Ok(None) };
        if file.module.replace(*module.hash()) == Some(*module.hash()) {
            return Ok(None);
        }
        Ok(Some(Change { name: session.to_owned(), module: Some(module) }))
    }
}

/// The name of a file without its ending.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const MODULE: &str = "(module (func (export \"_start\")))";

    /// A folder of this test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("wavelock-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// What two looks find, as a word for each: a name of a session, with a minus when it is gone,
    /// or why something was skipped.
    fn looks(watch: &mut Watch) -> [Vec<String>; 2] {
        [(); 2].map(|()| {
            let mut words = Vec::new();
            let went_on = watch.look(&mut |found| {
                words.push(match found {
                    Found::Change(Change { name, module: Some(_) }) => name,
                    Found::Change(Change { name, module: None }) => format!("-{name}"),
                    Found::Skipped(reason) => reason,
                });
                true
            });
            assert!(went_on);
            words
        })
    }

    #[test]
    fn a_file_counts_when_it_has_come_to_rest_and_once() {
        let folder = folder("rest");
        let mut watch = Watch::new(Arc::new(Modules::new(&folder, Arc::default())));
        let none = || Vec::<String>::new();
        let put = |name: &str, text: &str| fs::write(folder.join(name), text).expect("a file");
        put("a.wat", MODULE);
        put(".b.wat", MODULE);
        put("c.txt", MODULE);
        assert_eq!(looks(&mut watch), [none(), vec!["a".to_owned()]]);
        assert_eq!(looks(&mut watch), [none(), none()]);
        // Still growing at the second look.
        put("a.wat", "(module");
        assert!(watch.look(&mut |_| panic!("it has just changed")));
        put("a.wat", "(module (func");
        let [first, second] = looks(&mut watch);
        assert_eq!(first, none());
        assert!(second.len() == 1 && second[0].starts_with("a.wat: is not a module"), "{second:?}");
        assert_eq!(looks(&mut watch), [none(), none()], "told once");
        // The module that its session has is no change.
        put("a.wat", MODULE);
        put("a.wasm", "\0asm\u{1}\0\0\0");
        let [_, second] = looks(&mut watch);
        assert_eq!(second, ["a.wasm: session `a` has the module of a.wat"]);
        fs::remove_file(folder.join("a.wat")).expect("it is there");
        assert_eq!(looks(&mut watch), [none(), vec!["-a".to_owned(), "a".to_owned()]]);
        fs::remove_dir_all(&folder).expect("it is there");
        let [first, second] = looks(&mut watch);
        assert!(first.len() == 1 && first[0].contains("No such file") && second.is_empty());
    }

    #[test]
    fn more_modules_than_are_watched_wait() {
        let folder = folder("many");
        let mut watch = Watch::new(Arc::new(Modules::new(&folder, Arc::default())));
        for number in 0..MOST_FILES + 10 {
            fs::write(folder.join(format!("m{number:04}.wat")), MODULE).expect("a file");
        }
        let [first, second] = looks(&mut watch);
        assert!(first.len() == 1 && first[0].ends_with("than 1_024 modules: the others wait"));
        assert_eq!(second.len(), MOST_FILES);
        fs::remove_file(folder.join("m0007.wat")).expect("it is there");
        let [first, second] = looks(&mut watch);
        assert_eq!((first, second), (Vec::new(), vec!["-m0007".to_owned()]));
        assert_eq!(looks(&mut watch)[0], ["m1024"]);
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
