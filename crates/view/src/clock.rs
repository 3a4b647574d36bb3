//! The events of a frame, split into waves.

use wavelock_trace::{Event, EventError, EventReader};

/// The events of a lane in one wave, or before its first wave in a frame.
#[derive(Clone, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) lane: u16,
    /// The lane clock at the wave's start; `None` before the first wave of the frame.
    pub(crate) began: Option<u64>,
    pub(crate) events: Vec<Event<'a>>,
}

/// The segments of all lanes, wave by wave: those of one wave have the same clock and are in lane
/// order.
pub(crate) fn segments<'a>(lanes: &[&'a [u8]]) -> Result<Vec<Segment<'a>>, EventError> {
    let mut found = Vec::new();
    for (lane, bytes) in lanes.iter().enumerate() {
        let mut segment = Segment { lane: lane as u16, began: None, events: Vec::new() };
        for event in EventReader::new(bytes) {
            match event? {
                Event::Wave { clock } => {
                    let next =
                        Segment { lane: lane as u16, began: Some(clock), events: Vec::new() };
                    found.push(std::mem::replace(&mut segment, next));
                }
                event => segment.events.push(event),
            }
        }
        found.push(segment);
    }
    found.retain(|segment| segment.began.is_some() || !segment.events.is_empty());
    found.sort_by_key(|segment| (segment.began, segment.lane));
    Ok(found)
}
