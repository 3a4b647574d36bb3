//! Likely mistakes of a machine that can be loaded, found in its description.

use super::error::Warning;
use super::link::imports_any;
use crate::authority::Grant;
use crate::spec::MachineSpec;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{HostOperation, SessionId};

/// Clients that a warning names; more are counted.
const NAMED: usize = 3;

/// Passive servers that are called from other lanes. Such a call lends nothing and is refused.
pub(super) fn passive_servers(spec: &MachineSpec, warnings: &mut Vec<Warning>) {
    let importing = |operation| -> Vec<bool> {
        spec.modules.iter().map(|module| imports_any(module, &[operation])).collect()
    };
    let (serves, calls) = (importing(HostOperation::Serve), importing(HostOperation::Call));
    let owns_time = |id: SessionId| {
        let makes = |grant: &crate::GrantSpec| grant.session == id && grant.grant == Grant::Control;
        spec.contexts.iter().any(|context| context.session == id) || spec.grants.iter().any(makes)
    };
    let mut clients: BTreeMap<SessionId, Vec<SessionId>> = BTreeMap::new();
    for (client, session) in (0u32..).map(SessionId).zip(&spec.sessions) {
        for &(_, channel) in session.ports.iter().filter(|_| calls[session.module]) {
            let owner = spec.channels[channel].owner;
            let server = &spec.sessions[owner.0 as usize];
            let is_near = session.placement.lanes().contains(&server.placement.home());
            if owner == client || is_near || !serves[server.module] {
                continue;
            }
            let far = clients.entry(owner).or_default();
            if far.last() != Some(&client) {
                far.push(client);
            }
        }
    }
    for (server, far) in clients.into_iter().filter(|(server, _)| !owns_time(*server)) {
        let spec_of = |id: SessionId| &spec.sessions[id.0 as usize];
        let named = far.iter().take(NAMED).map(|&client| {
            let client = spec_of(client);
            format!("`{}` on lane {}", client.name, client.placement.home())
        });
        let mut clients: String = named.collect::<Vec<_>>().join(", ");
        if far.len() > NAMED {
            clients += &format!(" and {} more", far.len() - NAMED);
        }
        let server = spec_of(server);
        let (session, lane) = (server.name.clone(), server.placement.home());
        warnings.push(Warning::PassiveServer { session, lane, clients });
    }
}
