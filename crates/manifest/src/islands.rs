//! `[[island]]`: contexts and channels that are admitted together.
//!
//! Contract: as `read`. Elsewhere: admission, at load.

use crate::keys::{self, ISLAND};
use crate::model::Manifest;
use crate::problem::{Named, Problem};
use crate::read::{ManifestValue, Reader};
use crate::view::{At, View};
use std::collections::BTreeSet;
use toml::de::DeTable;
use wavelock_abi::Cycles;
use wavelock_module::Bounds;
use wavelock_system::IslandSpec;

impl Reader<'_, '_> {
    /// Reads islands into a manifest whose contexts and channels are resolved.
    pub(crate) fn islands(&mut self, table: &DeTable<'_>, manifest: &mut Manifest) {
        let mut names = BTreeSet::new();
        for view in self.array(table, "island", "[[island]]", ISLAND) {
            let index = manifest.islands.len() as u32;
            let Some(island) = self.island(&view, index, manifest) else { continue };
            if names.insert(island.name.clone()) {
                manifest.islands.push(island);
            } else {
                let reason = "another island has this name".to_owned();
                let found = format!("\"{}\"", island.name);
                let problem = Problem::BadName { named: Named::Island, found, reason };
                self.add(view.span.clone(), &problem);
            }
        }
    }

    fn island(
        &mut self,
        view: &View<'_, '_>,
        index: u32,
        manifest: &Manifest,
    ) -> Option<IslandSpec> {
        let name = self.name(view, &keys::ISLAND_NAME, Named::Island);
        let contexts: Vec<String> = manifest
            .contexts
            .iter()
            .map(|context| {
                let session = &manifest.sessions[context.session.0 as usize].name;
                format!("{session}/{}", context.name)
            })
            .collect();
        let channels: Vec<String> =
            manifest.channels.iter().map(|channel| channel.name.clone()).collect();
        let members =
            self.named(view, &keys::ISLAND_MEMBERS, (Named::Context, "a member"), &contexts);
        let path = self.named(view, &keys::ISLAND_PATH, (Named::Channel, "a channel"), &channels);
        let pages = self.findings.number(view, &keys::ISLAND_PAGES);
        let period = self.required_number(view, &keys::ISLAND_PERIOD);
        let deadline = self.findings.number(view, &keys::ISLAND_DEADLINE);
        let bounds = self.bounds(view)?;
        if view.value(&keys::ISLAND_MEMBERS).is_none() {
            let key = &keys::ISLAND_MEMBERS;
            self.add(view.span.clone(), &Problem::Missing { table: view.header, key });
        }
        let (name, members, period) = (name?, members?, period?);
        self.spans.insert(ManifestValue::Island(index, keys::ISLAND_NAME.name), name.span);
        let deadline = deadline.map_or(period.value, |deadline| deadline.value);
        Some(IslandSpec {
            name: name.value,
            members,
            path: path.unwrap_or_default(),
            memory_pages: pages.map_or(u64::MAX, |pages| pages.value),
            period: Cycles(period.value),
            deadline: Cycles(deadline),
            bounds,
        })
    }

    fn required_number(&mut self, view: &View<'_, '_>, key: &'static keys::Key) -> Option<At<u64>> {
        if view.value(key).is_none() {
            self.add(view.span.clone(), &Problem::Missing { table: view.header, key });
        }
        self.findings.number(view, key)
    }

    /// The texts of a list.
    fn texts(&mut self, view: &View<'_, '_>, key: &keys::Key, what: &str) -> Vec<At<String>> {
        let list = self.findings.list(view, key).map_or(&[][..], |list| list.value);
        list.iter()
            .filter_map(|element| self.findings.text_value(what.to_owned(), element))
            .collect()
    }

    /// The indices of known names, ascending.
    fn named(
        &mut self,
        view: &View<'_, '_>,
        key: &keys::Key,
        (named, what): (Named, &str),
        known: &[String],
    ) -> Option<Vec<usize>> {
        view.value(key)?;
        let mut found = Vec::new();
        for name in self.texts(view, key, what) {
            if let Some(index) = known.iter().position(|known| *known == name.value) {
                found.push(index);
            } else {
                let nearest = self.findings.nearest(&name.value, known.iter().map(String::as_str));
                let nearest = nearest.map(str::to_owned);
                let problem = Problem::Unknown { named, name: name.value, nearest, counted: None };
                self.add(name.span, &problem);
            }
        }
        found.sort_unstable();
        Some(found)
    }

    /// Lines of bounds, each of which can be read.
    fn bounds(&mut self, view: &View<'_, '_>) -> Option<Vec<String>> {
        let lines = self.texts(view, &keys::ISLAND_BOUNDS, "a bound");
        for line in &lines {
            if let Err(error) = Bounds::default().add(&line.value) {
                let (what, found) = ("a bound".to_owned(), error.to_string());
                let wanted =
                    "a line `1 loop ORDINAL MOST FUNCTION` or `1 size ORDINAL MOST FUNCTION`";
                self.add(line.span.clone(), &Problem::WrongKind { what, wanted, found });
                return None;
            }
        }
        Some(lines.into_iter().map(|line| line.value).collect())
    }
}
