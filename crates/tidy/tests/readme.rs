//! `.ci/readme`, which runs the commands of README.md in CI, finds all of them and can fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two directories below the root")
}

/// Runs the script on a planted page.
fn planted(name: &str, page: &str, argument: &str) -> Output {
    let folder: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme").join(name);
    fs::create_dir_all(folder.join(".ci")).expect("the folder can be made");
    fs::copy(root().join(".ci/readme"), folder.join(".ci/readme"))
        .expect("the script can be copied");
    fs::write(folder.join("README.md"), page).expect("the page can be written");
    Command::new("bash").arg(folder.join(".ci/readme")).arg(argument).output().expect("bash runs")
}

const BLOCK: &str = "```";

#[test]
fn the_first_block_is_two_commands() {
    let output = Command::new("bash")
        .arg(root().join(".ci/readme"))
        .arg("commands")
        .output()
        .expect("bash runs");
    let commands = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && commands.lines().count() == 2, "{commands}");
    assert_eq!(commands.lines().last(), Some("cargo test --workspace"));
    for page in ["", "true\n", "true\ntrue\ntrue\n"] {
        let output = planted("commands", &format!("{BLOCK}sh\n{page}{BLOCK}\n"), "commands");
        assert!(!output.status.success(), "{page:?} is not two commands");
    }
}

#[test]
fn a_failing_command_is_detected() {
    let page =
        |tour: &str| format!("{BLOCK}sh\ntrue\ntrue\n{BLOCK}\n\n{BLOCK}sh\n{tour}\n{BLOCK}\n");
    assert!(
        planted("works", &page("true\n# a comment\nbash -c 'exit 6' # exits 6"), "tour")
            .status
            .success()
    );
    for tour in [
        "false",
        "true\nfalse\ntrue",
        "true # exits 6",
        "false | true",
        "bash -c 'exit 5' # exits 6",
    ] {
        assert!(!planted("fails", &page(tour), "tour").status.success(), "{tour:?} passed");
    }
}

/// A command outside an `sh` block would be on the page and never be run.
#[test]
fn every_command_is_in_a_block_that_is_run() {
    let text = fs::read_to_string(root().join("README.md")).expect("the README can be read");
    let mut block: Option<&str> = None;
    let mut commands = 0;
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix(BLOCK) {
            block = if block.is_some() { None } else { Some(kind) };
        } else if line.starts_with("cargo ")
            || line.starts_with("wavelock ")
            || line.starts_with("$ ")
        {
            assert_eq!(block, Some("sh"), "{line} is not run by CI");
            commands += 1;
        }
    }
    assert!(commands >= 2 && block.is_none());
}
