//! A guest that answers its input, advanced three frames.

use wavelock::{Engine, Error, Machine, SessionBuilder};

const ECHO: &[u8] = include_bytes!("guests/echo.wat");

fn main() -> Result<(), Error> {
    let engine = Engine::new(1)?;
    let echo = engine.module(ECHO)?;
    let session = SessionBuilder::new("echo", &echo);
    let mut machine = Machine::builder(&engine).session(session).build()?;
    let session = machine.session("echo").ok_or(Error::Over)?;

    for word in ["one", "two", "three"] {
        machine.input(session, word.as_bytes())?;
        let report = machine.advance()?;
        for (_, bytes) in report.outputs() {
            println!("frame {}: {}", report.frame().0, String::from_utf8_lossy(bytes));
        }
    }
    println!("digest {}", machine.digest());
    Ok(())
}
