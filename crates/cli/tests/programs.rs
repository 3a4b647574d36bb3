//! Real programs in `corpus/programs`: each prints what two other engines printed, whatever the
//! length of its slices.
//!
//! Elsewhere: `checks/programs` runs the other builds of the same programs and compares with other
//! engines in one process.

mod program_case;

use program_case::{Case, Outputs, Shown, Slicing, corpus, load, run};

#[test]
fn committed_programs_print_what_other_engines_print() {
    let (mut outputs, mut modules) = (Outputs::new(), 0);
    for case in Case::all() {
        for build in &case.committed {
            let name = format!("{} of {}-{build}", case.name, case.program);
            assert!(case.builds.contains(build), "{name}: not a build of this program");
            let path = corpus().join(format!("programs/{}-{build}.wasm", case.program));
            let bytes =
                std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let module = load(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            let stdin = case.stdin(&outputs);
            let (shown, cycles) = run(&case, &bytes, &module, &stdin, Slicing::USUAL)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            if let Err(wrong) = case.judge(&shown, &outputs) {
                panic!("{name}: {wrong}");
            }
            // Repeat short runs in the shortest slices.
            if cycles.0 < 30_000_000 {
                let sliced = run(&case, &bytes, &module, &stdin, Slicing::shortest(&module));
                assert_eq!(sliced, Ok((shown.clone(), cycles)), "{name} in the shortest slices");
            }
            outputs.insert(case.name.clone(), shown.stdout);
            modules += 1;
        }
    }
    assert!(modules >= 20, "only {modules} runs are of committed modules");
}

#[test]
fn a_wrong_output_or_exit_code_is_detected() {
    let mut outputs = Outputs::new();
    let case = |name: &str| {
        Case::all().into_iter().find(|case| case.name == name).expect("the index has this case")
    };
    let writer = case("writer");
    let text = std::fs::read(corpus().join("programs/writer.txt")).expect("readable");
    let shown = |stdout: &[u8], exit| Shown { stdout: stdout.into(), exit };
    assert_eq!(writer.judge(&shown(&text, 0), &outputs), Ok(()));
    assert!(writer.judge(&shown(&text, 1), &outputs).is_err());
    assert!(writer.judge(&shown(&text[1..], 0), &outputs).is_err());
    assert!(writer.judge(&shown(&text[..text.len() - 1], 0), &outputs).is_err());
    assert!(case("lua-words").judge(&shown(&text, 0), &outputs).is_err());
    outputs.insert("lua-words".into(), text.clone());
    assert_eq!(case("zlib-back").judge(&shown(&text, 0), &outputs), Ok(()));
    assert!(case("zlib-back").judge(&shown(&text[1..], 0), &outputs).is_err());
}
