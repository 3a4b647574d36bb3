//! `[[context]]`, `[[profile]]`, `[[grant]]` and `[[lease]]`: reserved CPU time, templates for it,
//! authority over it, and lanes for one coroutine alone.
//!
//! Contract: as `read`. A profile fills in the values that a context leaves out. Elsewhere:
//! admission control decides at load whether a lane can guarantee a context, with the same
//! positions.

use crate::diagnostic::Span;
use crate::keys::{self, CONTEXT, GRANT, LEASE, PROFILES};
use crate::model::{Manifest, Session};
use crate::problem::{Named, Problem};
use crate::read::{ManifestValue, Reader};
use crate::suggest::nearest;
use crate::view::{At, View};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use toml::de::DeTable;
use wavelock_abi::{Cycles, SessionId};
use wavelock_kernel::{Activation, Fallback, OverrunPolicy};
use wavelock_system::{ContextSpec, Grant, GrantSpec, LeaseSpec};

/// The values of `of` of a grant.
const GRANTS: &[&str] = &["control", "policy", "isolation"];

/// The values of a context or a profile; `None` where absent.
#[derive(Clone, Default)]
struct Terms {
    budget: Option<At<u64>>,
    period: Option<u64>,
    deadline: Option<u64>,
    refills: Option<u64>,
    overrun: Option<&'static str>,
    activation: Option<&'static str>,
}

/// The sessions by their names.
type Sessions = BTreeMap<String, SessionId>;

/// Names in use, by the scope they are unique in, with their positions.
type Names = BTreeMap<(String, String), Span>;

impl Reader<'_, '_> {
    /// Whether a name is new in the scope `within`; otherwise reports a duplicate.
    fn is_new(&mut self, names: &mut Names, named: Named, within: &str, name: &At<String>) -> bool {
        match names.entry((within.to_owned(), name.value.clone())) {
            Entry::Vacant(vacant) => {
                vacant.insert(name.span.clone());
                true
            }
            Entry::Occupied(first) => {
                let problem = Problem::Duplicate {
                    named,
                    name: name.value.clone(),
                    first: first.get().clone(),
                };
                self.add(name.span.clone(), &problem);
                false
            }
        }
    }

    /// Reads contexts, profiles and grants into a manifest whose sessions are resolved.
    pub(crate) fn time(&mut self, table: &DeTable<'_>, manifest: &mut Manifest) {
        let named =
            |(index, session): (usize, &Session)| (session.name.clone(), SessionId(index as u32));
        let sessions: Sessions = manifest.sessions.iter().enumerate().map(named).collect();
        let mut profiles: BTreeMap<String, Terms> = BTreeMap::new();
        let mut names = Names::new();
        for view in self.array(table, "profile", "[[profile]]", PROFILES) {
            let name = self.name(&view, &keys::PROFILE_NAME, Named::Profile);
            let terms = self.terms(&view);
            if let Some(name) =
                name.filter(|name| self.is_new(&mut names, Named::Profile, "", name))
            {
                profiles.insert(name.value, terms);
            }
        }
        names.clear();
        for view in self.array(table, "context", "[[context]]", CONTEXT) {
            let index = manifest.contexts.len() as u32;
            if let Some(mut context) = self.context(&view, index, &sessions, &profiles, &mut names)
            {
                let lanes = self.lane_list(&view, &keys::CONTEXT_LANES, &manifest.machine);
                let lanes = lanes.map_or_else(Vec::new, |lanes| lanes.value);
                context.lanes = lanes.into_iter().map(|lane| lane.0).collect();
                let fallback = self.findings.word(&view, &keys::FALLBACK);
                if fallback.is_some_and(|word| word.value == "held") {
                    context.fallback = Fallback::Held;
                }
                manifest.contexts.push(context);
            }
        }
        for view in self.array(table, "grant", "[[grant]]", GRANT) {
            if let Some(grant) = self.grant(&view, &sessions) {
                manifest.grants.push(grant);
            }
        }
        names.clear();
        for view in self.array(table, "lease", "[[lease]]", LEASE) {
            if let Some(lease) = self.lease(&view, &sessions, manifest, &mut names) {
                manifest.leases.push(lease);
            }
        }
    }

    fn lease(
        &mut self,
        view: &View<'_, '_>,
        sessions: &Sessions,
        manifest: &Manifest,
        names: &mut Names,
    ) -> Option<LeaseSpec> {
        let name = self.name(view, &keys::LEASE_NAME, Named::Lease);
        let name = name.filter(|name| self.is_new(names, Named::Lease, "", name));
        let session = self.findings.required_text(view, &keys::LEASE_SESSION);
        let session = session.and_then(|session| self.session_named(&session, sessions));
        let context = self.findings.required_text(view, &keys::LEASE_CONTEXT);
        let context = context.zip(session).and_then(|(context, session)| {
            let own = manifest.contexts.iter().enumerate();
            let own: Vec<(usize, &str)> = own
                .filter(|(_, context)| context.session == session)
                .map(|(at, context)| (at, context.name.as_str()))
                .collect();
            self.known(&context, Named::Context, &own)
        });
        let channels: Vec<(usize, &str)> =
            manifest.channels.iter().map(|channel| channel.name.as_str()).enumerate().collect();
        let mut wakes = Vec::new();
        for element in self.findings.list(view, &keys::LEASE_WAKES).map_or(&[][..], |at| at.value) {
            let text = self.findings.text_value("a channel of `wakes`".to_owned(), element);
            wakes.extend(text.and_then(|text| self.known(&text, Named::Channel, &channels)));
        }
        let lane = self.findings.number(view, &keys::LEASE_LANE);
        let expires = self.findings.number(view, &keys::LEASE_EXPIRES);
        let revocation = self.findings.number(view, &keys::LEASE_REVOCATION);
        let requested = self.findings.word(view, &keys::LEASE_REQUESTED);
        let place = ManifestValue::Lease(manifest.leases.len() as u32);
        self.spans.insert(place, name.as_ref().map_or(view.span.clone(), |name| name.span.clone()));
        Some(LeaseSpec {
            lane: lane.map(|lane| lane.value as u16),
            expires_frames: expires.map(|frames| frames.value),
            revocation: revocation.map(|cycles| Cycles(cycles.value)),
            wakes,
            at_start: requested.is_none_or(|word| word.value == "at-start"),
            ..LeaseSpec::new(&name?.value, session?, context?)
        })
    }

    /// The number of what a name means, among these; an unknown one is reported.
    fn known(&mut self, name: &At<String>, named: Named, all: &[(usize, &str)]) -> Option<usize> {
        let found = all.iter().find(|(_, known)| *known == name.value);
        if found.is_none() {
            let near = self.findings.nearest(&name.value, all.iter().map(|(_, known)| *known));
            let problem = Problem::Unknown {
                named,
                name: name.value.clone(),
                nearest: near.map(str::to_owned),
                counted: None,
            };
            self.add(name.span.clone(), &problem);
        }
        found.map(|(number, _)| *number)
    }

    fn terms(&mut self, view: &View<'_, '_>) -> Terms {
        Terms {
            budget: self.findings.number(view, &keys::BUDGET_CYCLES),
            period: self.findings.number(view, &keys::PERIOD_CYCLES).map(|number| number.value),
            deadline: self.findings.number(view, &keys::DEADLINE_CYCLES).map(|number| number.value),
            refills: self.findings.number(view, &keys::REFILLS).map(|number| number.value),
            overrun: view
                .value(&keys::OVERRUN)
                .and_then(|_| self.findings.word(view, &keys::OVERRUN))
                .map(|word| word.value),
            activation: view
                .value(&keys::ACTIVATION)
                .and_then(|_| self.findings.word(view, &keys::ACTIVATION))
                .map(|word| word.value),
        }
    }

    /// Resolves the session that a table names.
    fn session_named(&mut self, name: &At<String>, sessions: &Sessions) -> Option<SessionId> {
        let found = sessions.get(&name.value).copied();
        if found.is_none() {
            let near = self
                .findings
                .nearest(&name.value, sessions.keys().map(String::as_str))
                .map(str::to_owned);
            let problem = Problem::Unknown {
                named: Named::Session,
                name: name.value.clone(),
                nearest: near,
                counted: None,
            };
            self.add(name.span.clone(), &problem);
        }
        found
    }

    fn context(
        &mut self,
        view: &View<'_, '_>,
        index: u32,
        sessions: &Sessions,
        profiles: &BTreeMap<String, Terms>,
        names: &mut Names,
    ) -> Option<ContextSpec> {
        let name = self.name(view, &keys::CONTEXT_NAME, Named::Context);
        let session = self.findings.required_text(view, &keys::CONTEXT_SESSION);
        let within = session.as_ref().map_or("", |session| session.value.as_str());
        let name = name.filter(|name| self.is_new(names, Named::Context, within, name));
        // `capability` finds grants by these names.
        if let Some(name) = name.as_ref().filter(|name| GRANTS.contains(&name.value.as_str())) {
            let (found, reason) = (
                format!("\"{}\"", name.value),
                "reserved: `capability` finds a grant by this name".to_owned(),
            );
            self.add(name.span.clone(), &Problem::BadName { named: Named::Context, found, reason });
        }
        let session = session.and_then(|session| self.session_named(&session, sessions));
        let own = self.terms(view);
        let template = match self.findings.text(view, &keys::PROFILE) {
            None => Terms::default(),
            Some(wanted) => match profiles.get(&wanted.value) {
                Some(terms) => terms.clone(),
                None => {
                    let near = self
                        .findings
                        .nearest(&wanted.value, profiles.keys().map(String::as_str))
                        .map(str::to_owned);
                    let problem = Problem::Unknown {
                        named: Named::Profile,
                        name: wanted.value.clone(),
                        nearest: near,
                        counted: None,
                    };
                    self.add(wanted.span, &problem);
                    return None;
                }
            },
        };
        let budget = own.budget.or(template.budget);
        let period = own.period.or(template.period);
        for (key, is_missing) in
            [(&keys::BUDGET_CYCLES, budget.is_none()), (&keys::PERIOD_CYCLES, period.is_none())]
        {
            if is_missing && view.value(key).is_none() {
                self.add(view.span.clone(), &Problem::Missing { table: "[[context]]", key });
            }
        }
        let (name, budget, period) = (name?, budget?, period?);
        self.spans.insert(ManifestValue::Context(index, keys::BUDGET_CYCLES.name), budget.span);
        let mut context =
            ContextSpec::new(&name.value, session?, Cycles(budget.value), Cycles(period));
        if let Some(deadline) = own.deadline.or(template.deadline) {
            context.deadline = Cycles(deadline);
        }
        if let Some(refills) = own.refills.or(template.refills) {
            context.refills = refills as u8;
        }
        let overrun = own
            .overrun
            .or(template.overrun)
            .and_then(|word| OverrunPolicy::ALL.iter().find(|policy| policy.name() == word));
        context.overrun = overrun.copied().unwrap_or(context.overrun);
        if own.activation.or(template.activation) == Some("constant-bandwidth") {
            context.activation = Activation::ConstantBandwidth;
        }
        Some(context)
    }

    fn grant(&mut self, view: &View<'_, '_>, sessions: &Sessions) -> Option<GrantSpec> {
        let session = self.findings.required_text(view, &keys::GRANT_SESSION);
        let of = self.findings.required_text(view, &keys::GRANT_OF);
        let session = session.and_then(|session| self.session_named(&session, sessions));
        let of = of?;
        let grant = match of.value.as_str() {
            "control" => Grant::Control,
            "policy" => Grant::Policy,
            "isolation" => Grant::Isolation,
            word => {
                let found = format!("\"{}\"", word.escape_debug());
                let near = nearest(word, GRANTS.iter().copied());
                let near =
                    near.and_then(|near| GRANTS.iter().copied().find(|known| *known == near));
                self.add(
                    of.span,
                    &Problem::WrongWord {
                        what: "`of`".to_owned(),
                        found,
                        choices: GRANTS,
                        nearest: near,
                    },
                );
                return None;
            }
        };
        Some(GrantSpec { session: session?, grant })
    }
}
