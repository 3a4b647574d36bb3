//! `[template]`: what a session has that a live run starts.
//!
//! Contract: as `read`. Its keys are those of `[[session]]`, and mean the same; its ports lead to
//! channels of the manifest.

use crate::model::Template;
use crate::problem::{Named, Problem};
use crate::read::{INDEX, Reader, SessionDraft};

impl Reader<'_, '_> {
    /// Resolves the channels of a template.
    pub(crate) fn template<'c>(
        &mut self,
        draft: SessionDraft,
        channels: impl Iterator<Item = &'c str> + Clone,
    ) -> Template {
        let mut ports = Vec::new();
        for (port, channel) in draft.ports {
            if port.contains(INDEX) || channel.value.contains(INDEX) {
                let what = format!("port `{port}`");
                self.add(channel.span, &Problem::IndexWithoutCount { what, table: "session" });
                continue;
            }
            if channels.clone().any(|name| name == channel.value) {
                ports.push((port, channel.value));
                continue;
            }
            let nearest =
                self.findings.nearest(&channel.value, channels.clone()).map(str::to_owned);
            let (named, name) = (Named::Channel, channel.value);
            self.add(channel.span, &Problem::Unknown { named, name, nearest, counted: None });
        }
        ports.sort();
        Template {
            lane: draft.lanes.and_then(|lanes| lanes.value.first().copied()),
            priority: draft.priority,
            weight: draft.weight,
            class: draft.class,
            args: draft.args,
            env: draft.env,
            ports,
            coroutine_globals: draft.coroutine_globals.map_or_else(Vec::new, |list| list.value),
            cap: draft.cap.map(|cap| cap.value),
            limits: draft.limits,
        }
    }
}
