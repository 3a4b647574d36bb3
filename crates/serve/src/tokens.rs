//! Tokens: who may do what. Only hashes are kept; a token is shown once, when it is made.
//!
//! A presented token is hashed and the hash compared with each in constant time (`blake3::Hash`),
//! so an answer's time tells nothing about any token.

use crate::problem::Problem;
use crate::store::{Name, private, replace};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use wavelock_client::api::{self, Role, from_hex, to_hex};

/// The most tokens.
const MOST_TOKENS: usize = 1_024;

/// The most machines of one token.
const MOST_MACHINES: usize = 1_024;

/// What a presented token may have at most.
const MOST_BYTES: usize = 256;

/// The name of the first token.
const FIRST: &str = "admin";

/// Who asks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Names, or `*`.
    pub(crate) machines: Vec<String>,
    hash: String,
}

impl Identity {
    /// Somebody without a token.
    pub(crate) fn nobody() -> Self {
        let (name, hash) = (String::new(), String::new());
        Self { name, role: Role::Viewer, machines: Vec::new(), hash }
    }

    /// Whether it may see a machine at all.
    pub(crate) fn may_see(&self, machine: &str) -> bool {
        self.machines.iter().any(|allowed| allowed == "*" || allowed == machine)
    }

    /// Whether it is for every machine, also those that do not exist yet.
    pub(crate) fn is_for_all(&self) -> bool {
        self.machines.iter().any(|allowed| allowed == "*")
    }
}

/// The tokens of a server.
pub(crate) struct Tokens {
    path: PathBuf,
    known: RwLock<Vec<(blake3::Hash, Arc<Identity>)>>,
}

fn draw() -> Result<String, Problem> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Problem::internal(format!("no randomness: {error}")))?;
    Ok(format!("wl_{}", to_hex(&bytes)))
}

fn hash_of(token: &str) -> blake3::Hash {
    blake3::hash(token.as_bytes())
}

impl Tokens {
    /// Reads the tokens of a folder. A new folder gets one for everything, which is returned.
    pub(crate) fn open(folder: &Path) -> io::Result<(Self, Option<String>)> {
        let path = folder.join("tokens");
        let bad = |what: String| io::Error::other(format!("`{}`: {what}", path.display()));
        let mut tokens = Self { path: path.clone(), known: RwLock::default() };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = draw().map_err(|problem| io::Error::other(problem.message))?;
                let mut file = private(&folder.join("admin.token"))?;
                writeln!(file, "{token}")?;
                file.sync_all()?;
                let first = Identity {
                    name: FIRST.into(),
                    role: Role::Admin,
                    machines: vec!["*".into()],
                    hash: hash_of(&token).to_hex().to_string(),
                };
                tokens.known = RwLock::new(vec![(hash_of(&token), Arc::new(first))]);
                tokens.save(&tokens.read())?;
                return Ok((tokens, Some(token)));
            }
            Err(error) => return Err(error),
        };
        let mut known = Vec::new();
        for line in text.lines().take(MOST_TOKENS) {
            let identity: Identity =
                serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
            let hash = from_hex(&identity.hash).map_err(&bad)?;
            let hash = <[u8; 32]>::try_from(hash).map_err(|_| bad("a hash".into()))?;
            known.push((hash.into(), Arc::new(identity)));
        }
        tokens.known = RwLock::new(known);
        Ok((tokens, None))
    }

    fn read(&self) -> Vec<(blake3::Hash, Arc<Identity>)> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn save(&self, known: &[(blake3::Hash, Arc<Identity>)]) -> io::Result<()> {
        let mut text = String::new();
        for (_, identity) in known {
            text += &serde_json::to_string(&**identity)?;
            text.push('\n');
        }
        replace(&self.path, text.as_bytes())
    }

    /// Who this is. Compares with every token, whichever it is.
    pub(crate) fn find(&self, token: &str) -> Option<Arc<Identity>> {
        if token.len() > MOST_BYTES {
            return None;
        }
        let hash = hash_of(token);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for (one, identity) in known.iter() {
            if *one == hash {
                found = Some(identity.clone());
            }
        }
        found
    }

    /// Whether a token that was found before still is one.
    pub(crate) fn is_known(&self, identity: &Arc<Identity>) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|(_, one)| Arc::ptr_eq(one, identity))
    }

    pub(crate) fn list(&self) -> api::Tokens {
        let show = |identity: &Identity| api::Token {
            name: identity.name.clone(),
            role: identity.role,
            machines: identity.machines.clone(),
            token: None,
        };
        let mut tokens: Vec<_> = self.read().iter().map(|(_, identity)| show(identity)).collect();
        tokens.sort_by(|one, other| one.name.cmp(&other.name));
        api::Tokens { tokens }
    }

    pub(crate) fn create(&self, new: api::CreateToken) -> Result<api::Token, Problem> {
        let name = Name::new(&new.name)?;
        if new.machines.is_empty() || new.machines.len() > MOST_MACHINES {
            return Err(Problem::invalid(format!(
                "a token is for 1 to {MOST_MACHINES} machines, or for `*`"
            )));
        }
        for machine in new.machines.iter().filter(|machine| *machine != "*") {
            Name::new(machine)?;
        }
        let token = draw()?;
        let hash = hash_of(&token);
        let identity = Identity {
            name: name.as_str().into(),
            role: new.role,
            machines: new.machines.clone(),
            hash: hash.to_hex().to_string(),
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|(_, one)| one.name == identity.name) {
            return Err(Problem::conflict(format!("there is a token `{}`", identity.name)));
        }
        if known.len() >= MOST_TOKENS {
            return Err(Problem::full(format!("there are {MOST_TOKENS} tokens, the most allowed")));
        }
        let mut next = known.clone();
        next.push((hash, Arc::new(identity)));
        self.save(&next).map_err(|error| Problem::disk(&error))?;
        *known = next;
        let api::CreateToken { name, role, machines } = new;
        Ok(api::Token { name, role, machines, token: Some(token) })
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), Problem> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = known.clone();
        next.retain(|(_, one)| one.name != name);
        if next.len() == known.len() {
            return Err(Problem::not_found(format!("there is no token `{name}`")));
        }
        let rules = |one: &Identity| one.role == Role::Admin && one.is_for_all();
        if !next.iter().any(|(_, one)| rules(one)) {
            return Err(Problem::conflict(
                "the last admin token for all machines cannot be deleted: make another first",
            ));
        }
        self.save(&next).map_err(|error| Problem::disk(&error))?;
        *known = next;
        Ok(())
    }
}
