//! The speed table's `yield` workload for wasmi: each coroutine is a resumable call, metered with
//! fuel, in a ring of this program.
//!
//! usage: wasmi yield COROUTINES YIELDS   prints nanoseconds of CPU time per yield

use std::collections::VecDeque;
use wasmi::{Config, Engine, Error, Linker, Module, Store, TypedResumableCall};
use wavelock_peers::{cpu, workload};

const GUEST: &str = r#"(module
  (import "host" "yield" (func $yield))
  (func (export "worker") (param $left i32)
    (loop $again
      (call $yield)
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $again (local.get $left)))))"#;

fn main() -> Result<(), Error> {
    let (name, numbers) = workload();
    let (Some(&coroutines), Some(&yields)) = (numbers.first(), numbers.get(1)) else {
        std::process::exit(2)
    };
    if name != "yield" {
        std::process::exit(2);
    }
    let mut config = Config::default();
    config.consume_fuel(true);
    // The smallest stack, because most coroutines are suspended most of the time.
    config.set_min_stack_height(32);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, wat::parse_str(GUEST).expect("valid text"))?;
    let mut store = Store::new(&engine, ());
    store.set_fuel(u64::MAX / 2)?;
    let mut linker = Linker::new(&engine);
    linker.func_wrap("host", "yield", || -> Result<(), Error> { Err(Error::i32_exit(0)) })?;
    let instance = linker.instantiate_and_start(&mut store, &module)?;
    let worker = instance.get_typed_func::<i32, ()>(&store, "worker")?;
    let mut ring = VecDeque::with_capacity(coroutines);
    for _ in 0..coroutines {
        if let TypedResumableCall::HostTrap(call) =
            worker.call_resumable(&mut store, yields as i32)?
        {
            ring.push_back(call);
        }
    }
    let start = cpu();
    while let Some(call) = ring.pop_front() {
        if let TypedResumableCall::HostTrap(call) = call.resume(&mut store, &[])? {
            ring.push_back(call);
        }
    }
    println!("{:.3}", (cpu() - start) / (coroutines * yields) as f64);
    Ok(())
}
