//! The rules of Perfetto's documentation of track events beyond types: tracks are described before
//! use, slices are balanced, flows start before they end.

use crate::schema::Schema;
use protobuf::MessageDyn;
use protobuf::reflect::{MessageRef, ReflectValueRef};
use std::collections::{BTreeMap, BTreeSet};

/// Counters over the traces checked so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Packets.
    pub packets: u64,
    /// Slices that begin.
    pub slices: u64,
    /// Flows that end.
    pub flows: u64,
    /// Values of counters.
    pub counters: u64,
}

/// A field of a message, if it is set.
fn field<'a>(message: &'a dyn MessageDyn, name: &str) -> Option<ReflectValueRef<'a>> {
    let field = message.descriptor_dyn().field_by_name(name)?;
    field.get_singular(message)
}

fn number(message: &dyn MessageDyn, name: &str) -> Option<i128> {
    Some(match field(message, name)? {
        ReflectValueRef::U64(value) => value.into(),
        ReflectValueRef::U32(value) => value.into(),
        ReflectValueRef::I64(value) => value.into(),
        ReflectValueRef::I32(value) | ReflectValueRef::Enum(_, value) => value.into(),
        _ => return None,
    })
}

fn inner<'a>(message: &'a dyn MessageDyn, name: &str) -> Option<MessageRef<'a>> {
    match field(message, name)? {
        ReflectValueRef::Message(found) => Some(found),
        _ => None,
    }
}

fn named(message: &dyn MessageDyn) -> bool {
    matches!(field(message, "name"), Some(ReflectValueRef::String(name)) if !name.is_empty())
}

fn numbers(message: &dyn MessageDyn, name: &str) -> Vec<u64> {
    let Some(field) = message.descriptor_dyn().field_by_name(name) else { return Vec::new() };
    let value = |value| if let ReflectValueRef::U64(value) = value { Some(value) } else { None };
    field.get_repeated(message).into_iter().filter_map(value).collect()
}

/// The tracks of a trace and their open slices.
#[derive(Default)]
struct Tracks {
    /// Whether they are counters.
    described: BTreeMap<i128, bool>,
    open: BTreeMap<i128, u64>,
    last: BTreeMap<i128, i128>,
    begun: BTreeSet<u64>,
}

/// Decodes a trace with the schema and checks the rules.
///
/// # Errors
/// The first violation.
pub fn check(schema: &Schema, bytes: &[u8], counts: &mut Counts) -> Result<(), String> {
    let trace = schema.decode(bytes)?;
    let packets = trace.descriptor_dyn().field_by_name("packet").ok_or("a trace has no packets")?;
    let mut tracks = Tracks::default();
    for packet in packets.get_repeated(&*trace) {
        let ReflectValueRef::Message(packet) = packet else {
            return Err("a packet is not a message".to_owned());
        };
        counts.packets += 1;
        if number(&*packet, "trusted_packet_sequence_id") != Some(1) {
            return Err("a packet without a sequence".to_owned());
        }
        if let Some(track) = inner(&*packet, "track_descriptor") {
            tracks.describe(&*track)?;
        } else {
            let event = inner(&*packet, "track_event")
                .ok_or("a packet that is neither a track nor an event")?;
            let at = number(&*packet, "timestamp").ok_or("an event without a time")?;
            tracks.event(&*event, at, counts)?;
        }
    }
    Ok(())
}

impl Tracks {
    fn describe(&mut self, track: &dyn MessageDyn) -> Result<(), String> {
        let uuid = number(track, "uuid").ok_or("a track without a number")?;
        if !named(track) {
            return Err(format!("track {uuid} has no name"));
        }
        if number(track, "parent_uuid").is_some_and(|parent| !self.described.contains_key(&parent))
        {
            return Err(format!("track {uuid} is described before its parent"));
        }
        match self.described.insert(uuid, inner(track, "counter").is_some()) {
            None => Ok(()),
            Some(_) => Err(format!("track {uuid} is described twice")),
        }
    }

    fn event(
        &mut self,
        event: &dyn MessageDyn,
        at: i128,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let track = number(event, "track_uuid").ok_or("an event on no track")?;
        let counter = *self
            .described
            .get(&track)
            .ok_or_else(|| format!("an event on track {track}, which is not described"))?;
        let open = self.open.entry(track).or_default();
        let kind = number(event, "type").unwrap_or_default();
        // Instants may be written late; starts, ends and counters are in order on their track.
        if kind != 3 {
            let last = self.last.entry(track).or_insert(at);
            if at < *last {
                return Err(format!("track {track} goes back from {last} to {at}"));
            }
            *last = at;
        }
        match (kind, counter) {
            (1, false) => {
                counts.slices += 1;
                *open += 1;
                if !named(event) {
                    return Err(format!("a slice of track {track} has no name"));
                }
            }
            (2, false) => {
                *open = open
                    .checked_sub(1)
                    .ok_or_else(|| format!("a slice of track {track} ends without a start"))?
            }
            (3, false) => {}
            (4, true) => {
                counts.counters += 1;
                number(event, "counter_value")
                    .ok_or_else(|| format!("counter {track} without a value"))?;
            }
            (kind, _) => {
                return Err(format!(
                    "an event of type {kind} on track {track}, which {} a counter",
                    if counter { "is" } else { "is not" }
                ));
            }
        }
        if *open > 1 {
            return Err(format!("two slices of track {track} overlap"));
        }
        self.begun.extend(numbers(event, "flow_ids"));
        for flow in numbers(event, "terminating_flow_ids") {
            counts.flows += 1;
            if !self.begun.contains(&flow) {
                return Err(format!("flow {flow} ends without a start"));
            }
        }
        Ok(())
    }
}
