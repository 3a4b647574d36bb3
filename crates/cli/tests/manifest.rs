//! Manifests, text in, text out: the expected output for each `manifests/NAME.toml` is in
//! `NAME.txt`.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-cli --test manifest` updates the outputs. The second
//! half mutates the same files and checks that nothing panics and that an accepted manifest is
//! within every range.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use wavelock_cli::manifest::{self, Manifest, Overrides, Template, WaveSpan};
use wavelock_cli::{Diagnostics, Ink, Render, Source};
use wavelock_system::OwnLimits;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the corpus folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}

/// The output for one manifest: its problems, or its warnings and its contents.
fn answer(name: &str, text: &str, overrides: &Overrides) -> String {
    match manifest::read(Source::new(name, text), Path::new("dir"), overrides) {
        Err(problems) => problems.render(Ink::Plain),
        Ok(read) => {
            let warnings =
                Diagnostics::new(read.source.clone(), read.warnings.clone()).render(Ink::Plain);
            format!("{warnings}{}", show(&read.manifest))
        }
    }
}

fn show(manifest: &Manifest) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:?}\n{:?}", manifest.machine, manifest.limits);
    if manifest.template != Template::default() {
        let _ = writeln!(text, "{:?}", manifest.template);
    }
    for session in &manifest.sessions {
        let _ = writeln!(
            text,
            "session {} = {}",
            session.name,
            manifest.modules[session.module.0 as usize].display()
        );
        let lanes: Vec<u16> = session.lanes.iter().map(|lane| lane.0).collect();
        let _ = writeln!(
            text,
            "  lanes {lanes:?} priority {} weight {} class {:?}",
            session.priority.0,
            session.weight.get(),
            session.class
        );
        let _ = writeln!(
            text,
            "  args {:?} env {:?} globals {:?}",
            session.args, session.env, session.coroutine_globals
        );
        if let Some(cap) = session.cap {
            let _ = writeln!(
                text,
                "  cap {} in {} frames, {}",
                cap.budget.0,
                cap.period_frames,
                cap.overrun.name()
            );
        }
        if session.limits != OwnLimits::default() {
            let _ = writeln!(text, "  {:?}", session.limits);
        }
        for (port, channel) in &session.ports {
            let _ =
                writeln!(text, "  port {port} -> {}", manifest.channels[channel.0 as usize].name);
        }
    }
    for channel in &manifest.channels {
        let owner = &manifest.sessions[channel.owner.0 as usize].name;
        let _ =
            writeln!(text, "channel {} owner {owner} capacity {}", channel.name, channel.capacity);
    }
    for context in &manifest.contexts {
        let session = &manifest.sessions[context.session.0 as usize].name;
        let (overrun, activation) = (context.overrun.name(), context.activation);
        let _ = writeln!(
            text,
            "context {} of {session}: {} in {} within {}, {} refills, {overrun}, {activation:?}",
            context.name, context.budget.0, context.period.0, context.deadline.0, context.refills
        );
    }
    for grant in &manifest.grants {
        let _ = writeln!(
            text,
            "grant {:?} to {}",
            grant.grant, manifest.sessions[grant.session.0 as usize].name
        );
    }
    for island in &manifest.islands {
        let _ = writeln!(text, "{island:?}");
    }
    text
}

/// Compares with the expected file, or writes it when blessing.
fn check(expected_path: &Path, actual: &str) {
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(expected_path, actual).expect("bless");
        return;
    }
    let expected = std::fs::read_to_string(expected_path).unwrap_or_default();
    assert_eq!(
        expected,
        actual,
        "{}: run with WAVELOCK_BLESS=1 to accept",
        expected_path.display()
    );
}

#[test]
fn every_manifest_of_the_corpus_gives_its_expected_output() {
    let files = corpus();
    assert!(files.len() >= 14, "the corpus is there");
    for file in files {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        check(&file.with_extension("txt"), &answer(&name, &text, &Overrides::default()));
    }
}

#[test]
fn flags_override_values_and_are_named_in_errors() {
    let text = "[machine]\nlanes = 4\nseed = 1\n[[session]]\nname = \"a\"\nmodule = \"a.wasm\"\nlane = 3\n";
    let read = |overrides: &Overrides| {
        manifest::read(Source::new("m.toml", text), Path::new(""), overrides)
    };
    let plain = read(&Overrides::default()).expect("valid");
    assert_eq!((plain.manifest.machine.lanes, plain.manifest.machine.seed), (4, 1));
    let changed =
        read(&Overrides { seed: Some(9), lanes: Some(8), frames: Some(3), ..Overrides::default() })
            .expect("valid");
    assert_eq!((changed.manifest.machine.lanes, changed.manifest.machine.seed), (8, 9));
    assert_eq!(changed.manifest.machine.max_frames.map(|frames| frames.0), Some(3));
    let refused =
        read(&Overrides { lanes: Some(2), ..Overrides::default() }).expect_err("lane 3 of 2");
    let message = refused.render(Ink::Plain);
    assert!(message.contains("`lane` must be 0 to 1, found 3"), "{message}");
    assert!(message.contains("the machine has 2 lanes (from --lanes)"), "{message}");
}

#[test]
fn a_bare_module_is_a_manifest_with_one_session() {
    let read = manifest::of_module(
        Path::new("some/dir/my guest.wasm"),
        &Overrides { lanes: Some(3), ..Overrides::default() },
    );
    assert_eq!(
        show(&read.manifest).lines().nth(2),
        Some("session my_guest = some/dir/my guest.wasm")
    );
    assert_eq!(read.manifest.machine.lanes, 3);
    assert_eq!(read.manifest.sessions[0].args, ["my_guest"]);
}

#[test]
fn bytes_that_are_not_utf8_are_refused_with_their_position() {
    let problems =
        Source::decode("m.toml", b"[machine]\nlanes = \xff2\n".to_vec()).expect_err("not UTF-8");
    let message = problems.render(Ink::Plain);
    assert!(message.contains("m.toml:2:9"), "{message}");
    assert!(message.contains("byte 0xff is not UTF-8"), "{message}");
}

/// SplitMix64: its state is the seed that a failure prints.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// What `read` guarantees for every manifest it accepts.
fn check_promises(manifest: &Manifest) {
    let machine = &manifest.machine;
    assert!((1..=1024).contains(&machine.lanes));
    assert!(machine.frame_cycles.0 >= 1 && machine.quantum_cycles.0 >= 1);
    match machine.wave {
        WaveSpan::Cycles(cycles) => assert!(cycles.0 >= 1),
        WaveSpan::Picks(picks) => assert!(picks >= 1),
    }
    assert!(
        !manifest.sessions.is_empty() && manifest.sessions.len() as u64 <= manifest.limits.sessions
    );
    let mut names: Vec<&str> =
        manifest.sessions.iter().map(|session| session.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), manifest.sessions.len(), "names are unique");
    for session in &manifest.sessions {
        assert!((session.module.0 as usize) < manifest.modules.len());
        assert!(
            !session.lanes.is_empty() && session.lanes.iter().all(|lane| lane.0 < machine.lanes)
        );
        assert!(
            session.ports.iter().all(|(_, channel)| (channel.0 as usize) < manifest.channels.len())
        );
    }
    for channel in &manifest.channels {
        assert!((channel.owner.0 as usize) < manifest.sessions.len());
        assert!((1..=manifest.limits.channel_capacity).contains(&u64::from(channel.capacity)));
    }
}

/// Reads one text and renders its diagnostics. Returns whether it was accepted.
fn survive(bytes: Vec<u8>) -> bool {
    let result = Source::decode("m.toml", bytes)
        .and_then(|source| manifest::read(source, Path::new(""), &Overrides::default()));
    match result {
        Ok(read) => {
            check_promises(&read.manifest);
            true
        }
        Err(problems) => {
            assert!(problems.errors() > 0, "a refusal has a reason");
            assert!(!problems.render(Ink::Styled).is_empty() && !problems.rows().is_empty());
            false
        }
    }
}

#[test]
fn mutated_manifests_never_panic() {
    let originals: Vec<Vec<u8>> = corpus()
        .iter()
        .map(|path| std::fs::read(path).expect("a file"))
        .filter(|bytes| !bytes.is_empty())
        .collect();
    let accepted_originals: Vec<Vec<u8>> =
        originals.iter().filter(|bytes| survive((*bytes).clone())).cloned().collect();
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..2_000_u64 {
        let mut random = Random(seed);
        // Half of them start from a manifest that is accepted.
        let original = if random.below(2) == 0 {
            &accepted_originals[random.below(accepted_originals.len())]
        } else {
            &originals[random.below(originals.len())]
        };
        let mut bytes = original.clone();
        for _ in 0..=random.below(3) {
            mutate(&mut bytes, &originals, &mut random);
        }
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        match std::panic::catch_unwind(|| survive(bytes)) {
            Ok(true) => accepted += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("seed {seed} panics on:\n{shown}"),
        }
    }
    // The mutations are small enough to produce both outcomes.
    assert!(accepted > 50 && refused > 500, "{accepted} accepted, {refused} refused");
}

fn mutate(bytes: &mut Vec<u8>, originals: &[Vec<u8>], random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(b'\n');
    }
    let at = random.below(bytes.len());
    match random.below(8) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, random.next() as u8),
        3 => bytes.truncate(at),
        4 => bytes[at] = b"0123456789-_.[]{}=\"'#, \n\t\\"[random.below(26)],
        5 => {
            let end = (at + random.below(40)).min(bytes.len());
            let piece: Vec<u8> = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        6 => {
            let other = &originals[random.below(originals.len())];
            let start = random.below(other.len());
            let end = (start + random.below(80)).min(other.len());
            bytes.splice(at..at, other[start..end].iter().copied());
        }
        _ => {
            // A line is moved: order and repetition matter in TOML.
            let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            let (from, to) = (random.below(lines.len()), random.below(lines.len()));
            lines.swap(from, to);
            *bytes = lines.join(&b'\n');
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    for seed in 0..500_u64 {
        let mut random = Random(seed ^ 0xdead_beef);
        let length = random.below(200);
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                if random.below(4) == 0 {
                    random.next() as u8
                } else {
                    b' ' + random.below(95) as u8
                }
            })
            .collect();
        let shown = bytes.clone();
        assert!(
            std::panic::catch_unwind(|| survive(bytes)).is_ok(),
            "seed {seed} panics on {shown:?}"
        );
    }
}
