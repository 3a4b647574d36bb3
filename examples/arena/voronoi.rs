//! A bot in Rust: it moves to where it would own the most cells. A cell belongs to the bot that can
//! reach it first; all heads flood the free cells at the same pace, and ties have no owner.
#![cfg_attr(target_arch = "wasm32", no_std)]

use wavelock_guest::{Channel, Code};

const HEAD: usize = 12;
const MOST: usize = 1024;
const BOTS: usize = 4;
/// Marks in the map of owners: a free cell not reached yet, one that two bots reached at once, and
/// one that is not free.
const FREE: u8 = 255;
const SHARED: u8 = 254;
const TAKEN: u8 = 253;

/// The view that the referee sent.
struct View<'a> {
    bytes: &'a [u8],
}

impl View<'_> {
    fn me(&self) -> usize {
        usize::from(self.bytes[0])
    }
    fn width(&self) -> usize {
        usize::from(self.bytes[1])
    }
    fn turn(&self) -> i64 {
        i64::from(self.bytes[3])
    }
    fn cells(&self) -> &[u8] {
        &self.bytes[HEAD..]
    }
    /// A bot's head, if it is in the game.
    fn head(&self, bot: usize) -> Option<usize> {
        let (x, y) = (self.bytes[4 + 2 * bot], self.bytes[5 + 2 * bot]);
        (x != 255).then(|| usize::from(y) * self.width() + usize::from(x))
    }
    /// The neighbour of a cell; the wall around the board keeps it inside.
    fn step(&self, cell: usize, direction: usize) -> usize {
        match direction {
            0 => cell - self.width(),
            1 => cell + 1,
            2 => cell + self.width(),
            _ => cell - 1,
        }
    }
}

/// The number of cells that this bot would own if it were at `start`.
fn owned(view: &View<'_>, start: usize) -> u32 {
    let mut owner = [TAKEN; MOST];
    let mut reached_at = [0_u16; MOST];
    let mut queue = [0_u16; MOST];
    let (mut first, mut last) = (0, 0);
    for (mark, cell) in owner.iter_mut().zip(view.cells()) {
        *mark = if *cell == 0 { FREE } else { TAKEN };
    }
    for bot in 0..BOTS {
        let Some(head) = (if bot == view.me() { Some(start) } else { view.head(bot) }) else { continue };
        owner[head] = bot as u8;
        queue[last] = head as u16;
        last += 1;
    }
    let mut count = 0;
    while first < last {
        let cell = usize::from(queue[first]);
        first += 1;
        // A cell that became a tie after it was queued has no owner and is not expanded.
        let bot = owner[cell];
        if bot >= TAKEN {
            continue;
        }
        count += u32::from(usize::from(bot) == view.me());
        for direction in 0..4 {
            let next = view.step(cell, direction);
            let time = reached_at[cell] + 1;
            if owner[next] == FREE {
                owner[next] = bot;
                reached_at[next] = time;
                queue[last] = next as u16;
                last += 1;
            } else if owner[next] < TAKEN && owner[next] != bot && reached_at[next] == time {
                owner[next] = SHARED;
            }
        }
    }
    count
}

fn choose(view: &View<'_>, last: usize) -> usize {
    let Some(here) = view.head(view.me()) else { return last };
    let (mut best, mut most) = (last, 0);
    for turn in [0, 1, 3] {
        let direction = (last + turn) & 3;
        let there = view.step(here, direction);
        if view.cells()[there] != 0 {
            continue;
        }
        let worth = owned(view, there) + 1;
        if worth > most {
            (best, most) = (direction, worth);
        }
    }
    best
}

fn play() -> Result<(), Code> {
    let (views, moves) = (Channel::port("view")?, Channel::port("move")?);
    let mut direction = 1;
    let mut buffer = [0; HEAD + MOST];
    loop {
        let view = View { bytes: views.recv_bytes(&mut buffer)? };
        direction = choose(&view, direction);
        moves.send(view.turn() * 4 + direction as i64)?;
    }
}

/// The entry point of the session. It ends when the referee closes the channel of views.
#[unsafe(no_mangle)]
pub extern "C" fn _start() {
    if let Err(code) = play() {
        if code != Code::Closed {
            wavelock_guest::log(code.name());
            wavelock_guest::log("\n");
        }
    }
}
