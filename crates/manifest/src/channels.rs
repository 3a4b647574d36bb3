//! Counted channels: `count` and `{index}` of a `[[channel]]`, and the ports that lead to all of
//! them (manifest 5).
//!
//! Contract: a problem of a counted channel is reported once for its line.

use crate::diagnostic::Span;
use crate::keys::{self, MOST_CHANNELS};
use crate::model::ChannelIndex;
use crate::problem::{Named, Problem};
use crate::read::{INDEX, Reader, name_refusal};
use crate::view::{At, View};
use std::collections::BTreeMap;
use std::ops::Range;

/// A channel as written, or one of those that a counted one makes.
pub(crate) struct ChannelDraft {
    pub(crate) name: At<String>,
    pub(crate) owner: At<String>,
    pub(crate) count: Option<At<u64>>,
    pub(crate) capacity: u64,
}

/// By the name of a counted channel as written: the channels that it makes.
pub(crate) type CountedChannels = BTreeMap<String, Range<u32>>;

/// Channels, one by one.
pub(crate) struct ChannelDrafts {
    pub(crate) list: Vec<ChannelDraft>,
    pub(crate) counted: CountedChannels,
}

impl Reader<'_, '_> {
    /// The name of a channel: with `{index}` if it is counted.
    pub(crate) fn channel_name(
        &mut self,
        view: &View<'_, '_>,
        count: Option<&At<u64>>,
    ) -> Option<At<String>> {
        let Some(count) = count else {
            let text = self.findings.text(view, &keys::CHANNEL_NAME);
            if let Some(name) = text.filter(|name| name.value.contains(INDEX))
                && view.value(&keys::CHANNEL_COUNT).is_none()
            {
                let (what, table) = ("`name`".to_owned(), "channel");
                self.add(name.span, &Problem::IndexWithoutCount { what, table });
                return None;
            }
            return self.name(view, &keys::CHANNEL_NAME, Named::Channel);
        };
        let name = self.findings.required_text(view, &keys::CHANNEL_NAME)?;
        if !name.value.contains(INDEX) {
            let problem = Problem::CountWithoutIndex { name: name.value.clone() };
            self.add(name.span, &problem);
            return None;
        }
        let longest = name.value.replace(INDEX, &(count.value - 1).to_string());
        if let Some(reason) = name_refusal(&longest) {
            let found = format!("\"{}\"", name.value.escape_debug());
            self.add(name.span, &Problem::BadName { named: Named::Channel, found, reason });
            return None;
        }
        Some(name)
    }

    /// Makes the channels of each `count`. Reports a machine with too many.
    pub(crate) fn expand_channels(&mut self, written: Vec<ChannelDraft>) -> ChannelDrafts {
        let mut drafts = ChannelDrafts { list: Vec::new(), counted: BTreeMap::new() };
        for draft in written {
            let Some(count) = draft.count else {
                drafts.list.push(draft);
                continue;
            };
            let found = drafts.list.len() as u64 + count.value;
            if found > MOST_CHANNELS {
                let what = "channels up to here".to_owned();
                let rule =
                    format!("all channels together are at most {}", keys::grouped(MOST_CHANNELS));
                let problem = Problem::TooMany { what, found, most: MOST_CHANNELS, rule };
                self.add(count.span, &problem);
                break;
            }
            let first = drafts.list.len() as u32;
            let fill = |text: &At<String>, index: u64| At {
                value: text.value.replace(INDEX, &index.to_string()),
                span: text.span.clone(),
            };
            drafts.list.extend((0..count.value).map(|index| ChannelDraft {
                name: fill(&draft.name, index),
                owner: fill(&draft.owner, index),
                count: None,
                capacity: draft.capacity,
            }));
            drafts.counted.insert(draft.name.value, first..first + count.value as u32);
        }
        drafts
    }

    /// The ports that a port with `{index}` in its name stands for: one to each channel of a
    /// `count`.
    pub(crate) fn ports_to_all(
        &mut self,
        port: &str,
        channel: &At<String>,
        counted: &CountedChannels,
    ) -> Vec<(String, ChannelIndex)> {
        let Some(channels) = counted.get(&channel.value) else {
            let known = counted.keys().map(String::as_str);
            let nearest = self.findings.nearest(&channel.value, known).map(str::to_owned);
            let problem = Problem::NotCounted { port: port.to_owned(), nearest };
            self.add(channel.span.clone(), &problem);
            return Vec::new();
        };
        let named = |number: u32| port.replace(INDEX, &number.to_string());
        (0..).map(named).zip(channels.clone().map(ChannelIndex)).collect()
    }

    /// Reports the first of two ports with one name, which `{index}` can make.
    pub(crate) fn refuse_port_twice(&mut self, ports: &[(String, ChannelIndex)], span: &Span) {
        let mut names: Vec<&str> = ports.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let (named, name) = (Named::Port, twice[0].to_owned());
            self.add(span.clone(), &Problem::Duplicate { named, name, first: span.clone() });
        }
    }
}
