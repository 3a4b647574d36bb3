//! A game engine's loop in the style of bevy: a fixed-update stage that advances the machine, and a
//! render stage that reads what came out. No engine is needed to run it.

use std::time::{Duration, Instant};
use wavelock::{Engine, Error, Machine, Pacer, Session, SessionBuilder};

/// What systems share: the machine and what it last wrote.
struct World {
    machine: Machine,
    game: Session,
    pacer: Pacer,
    positions: [i32; 2],
    drawn: u32,
}

type System = fn(&mut World) -> Result<(), Error>;

/// Reads the players' devices: here two sticks that are pushed to the right and to the left.
fn read_input(world: &mut World) -> Result<(), Error> {
    world.machine.input(world.game, &[0, 1])?;
    world.machine.input(world.game, &[1, 255])?;
    Ok(())
}

/// The fixed update: inputs and one frame of the machine, as often as is due.
fn fixed_update(world: &mut World) -> Result<(), Error> {
    for _ in 0..world.pacer.due(Instant::now(), 4) {
        read_input(world)?;
        let report = world.machine.advance()?;
        for (_, bytes) in report.outputs() {
            let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
            let position = |at| i32::from_le_bytes(word(at).unwrap_or_default());
            world.positions = [position(0), position(4)];
        }
    }
    Ok(())
}

fn render(world: &mut World) -> Result<(), Error> {
    world.drawn += 1;
    std::thread::sleep(Duration::from_millis(4));
    Ok(())
}

fn main() -> Result<(), Error> {
    let engine = Engine::new(1)?;
    let module = engine.module(include_bytes!("guests/peers.wat"))?;
    let session = SessionBuilder::new("game", &module);
    let machine = Machine::builder(&engine).session(session).build()?;
    let game = machine.session("game").ok_or(Error::Over)?;
    let pacer = Pacer::hz(240.0);
    let mut world = World { machine, game, pacer, positions: [0; 2], drawn: 0 };
    let schedule: [System; 2] = [fixed_update, render];
    while world.machine.frame().0 < 60 {
        schedule.iter().try_for_each(|system| system(&mut world))?;
    }
    let [right, left] = world.positions;
    println!("{} pictures of {} frames: {right} and {left}", world.drawn, world.machine.frame().0);
    assert_eq!(i64::from(right), -i64::from(left), "both moved as often");
    Ok(())
}
