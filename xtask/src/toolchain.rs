//! Finds the compiler, standard library, linker and runner of a foreign target, by name on the
//! search path.
//!
//! Two routes. `Rustup`: the default compiler has the target's component. `Source`: another
//! compiler on the path has its library as source (as Debian's), from which a sysroot is built once
//! and cached in the target directory. The second takes a minute per target and uses an unstable
//! cargo flag for the sysroot only; the crates themselves are built without it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{answer, run};

/// How a target's program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runner {
    /// A WebAssembly module, with the Node script of this name in the corpus directory.
    Node(&'static str),
    /// A program for another processor, with the emulator of this name.
    Emulator(&'static str),
}

/// A foreign target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Its short name.
    pub(crate) name: &'static str,
    /// Its target triple.
    pub(crate) triple: &'static str,
    /// The C compiler that links for it; WebAssembly has its own linker.
    linker: Option<&'static str>,
    /// How its program is run.
    pub(crate) runner: Runner,
}

/// The targets, cheapest first.
pub(crate) const TARGETS: [Target; 3] = [
    Target {
        name: "wasm32",
        triple: "wasm32-unknown-unknown",
        linker: None,
        runner: Runner::Node("run.mjs"),
    },
    Target {
        name: "aarch64",
        triple: "aarch64-unknown-linux-gnu",
        linker: Some("aarch64-linux-gnu-gcc"),
        runner: Runner::Emulator("qemu-aarch64"),
    },
    Target {
        name: "s390x",
        triple: "s390x-unknown-linux-gnu",
        linker: Some("s390x-linux-gnu-gcc"),
        runner: Runner::Emulator("qemu-s390x"),
    },
];

/// The origin of a target's standard library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// The default compiler has it.
    Rustup,
    /// It is built from the library source of a compiler.
    Source,
}

/// The tools to build for a target on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    target: Target,
    route: Route,
    compiler: PathBuf,
    linker: Option<PathBuf>,
    runner: PathBuf,
}

/// The missing tools, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Missing(pub(crate) Vec<String>);

impl Toolchain {
    /// Finds the tools for a target, by the given route or the first that works.
    pub(crate) fn find(target: Target, route: Option<Route>) -> Result<Self, Missing> {
        let mut missing = Vec::new();
        let mut need = |tool: &str| {
            let found = on_path(tool).into_iter().next();
            if found.is_none() {
                missing.push(tool.to_owned());
            }
            found
        };
        let runner = need(match target.runner {
            Runner::Node(_) => "node",
            Runner::Emulator(emulator) => emulator,
        });
        let rustup = on_path("rustc")
            .into_iter()
            .next()
            .filter(|compiler| has_library(compiler, target.triple));
        let source = on_path("rustc").into_iter().find(|compiler| has_source(compiler));
        let (route, compiler) = match (route, rustup, source) {
            (None | Some(Route::Rustup), Some(compiler), _) => (Route::Rustup, Some(compiler)),
            (None | Some(Route::Source), _, Some(compiler)) => (Route::Source, Some(compiler)),
            (route, ..) => (route.unwrap_or(Route::Rustup), None),
        };
        // The default compiler includes a linker for WebAssembly; one with library source does not.
        let linker = match target.linker {
            Some(linker) => need(linker),
            None if route == Route::Source => newest_on_path("wasm-ld").or_else(|| need("wasm-ld")),
            None => None,
        };
        if compiler.is_none() {
            missing.push(format!("a standard library for {}", target.triple));
        }
        match (compiler, runner) {
            (Some(compiler), Some(runner)) if missing.is_empty() => {
                Ok(Self { target, route, compiler, linker, runner })
            }
            _ => Err(Missing(missing)),
        }
    }

    /// The compiler's version, for the report.
    pub(crate) fn describe(&self) -> Result<String, String> {
        let version = answer(Command::new(&self.compiler).arg("--version"))?;
        let version = version.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Ok(format!(
            "{version}{}",
            if self.route == Route::Source { ", library from source" } else { "" }
        ))
    }

    /// A cargo command that builds an optimised package for the target into `folder`; the caller
    /// adds what to build.
    pub(crate) fn cargo(&self, folder: &Path, package: &str) -> Result<Command, String> {
        let variable = |name: &str| {
            format!("CARGO_TARGET_{}_{name}", self.target.triple.replace('-', "_").to_uppercase())
        };
        let mut flags = Vec::new();
        if self.target.linker.is_some() {
            // A statically linked program needs no libraries of the target system.
            flags.push("-Ctarget-feature=+crt-static".to_owned());
        }
        let mut command = Command::new(cargo());
        if self.route == Route::Source {
            flags.push(format!("--sysroot {}", self.sysroot(folder)?.display()));
            command.env("RUSTC", &self.compiler);
        }
        if let Some(linker) = &self.linker {
            command.env(variable("LINKER"), linker);
        }
        // The corpus is short: build time matters more than the last 10 % of speed.
        command
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        command
            .env(variable("RUSTFLAGS"), flags.join(" "))
            .env("CARGO_TARGET_DIR", folder.join(self.folder_name()?));
        command.args([
            "rustc",
            "--quiet",
            "--release",
            "--target",
            self.target.triple,
            "--package",
            package,
        ]);
        Ok(command)
    }

    /// The output directory of such a build.
    pub(crate) fn built(&self, folder: &Path) -> Result<PathBuf, String> {
        Ok(folder.join(self.folder_name()?).join(self.target.triple).join("release"))
    }

    /// A command that runs a program of the target.
    pub(crate) fn runner(&self) -> Command {
        Command::new(&self.runner)
    }

    /// A directory per compiler, so that one does not use the artifacts of another.
    fn folder_name(&self) -> Result<String, String> {
        let version = answer(Command::new(&self.compiler).arg("--version"))?;
        let version = version.split(' ').nth(1).unwrap_or("unknown").to_owned();
        Ok(format!("{version}-{}", if self.route == Route::Source { "source" } else { "rustup" }))
    }

    /// The sysroot built from the compiler's library source, on first use.
    fn sysroot(&self, folder: &Path) -> Result<PathBuf, String> {
        let root = folder.join(self.folder_name()?).join("sysroot");
        let libraries = root.join("lib/rustlib").join(self.target.triple).join("lib");
        if libraries.join("complete").exists() {
            return Ok(root);
        }
        println!("building a standard library for {} from source, once", self.target.triple);
        let fail = |error: std::io::Error| format!("{}: {error}", root.display());
        let seed = folder.join(self.folder_name()?).join("seed");
        fs::create_dir_all(seed.join("src")).map_err(fail)?;
        fs::create_dir_all(&libraries).map_err(fail)?;
        fs::write(seed.join("Cargo.toml"), SEED).map_err(fail)?;
        fs::write(seed.join("src/lib.rs"), "").map_err(fail)?;
        let built = seed.join("built");
        let mut command = Command::new(cargo());
        command.current_dir(&seed).env("RUSTC", &self.compiler).env("RUSTC_BOOTSTRAP", "1");
        // Embedded bitcode lets link-time optimisation include the library.
        command.env("RUSTFLAGS", "-Cembed-bitcode=yes").env("CARGO_TARGET_DIR", &built);
        command.args([
            "build",
            "--quiet",
            "--release",
            "--target",
            self.target.triple,
            "-Zbuild-std=std,panic_abort,panic_unwind",
        ]);
        run(&mut command)?;
        for entry in
            fs::read_dir(built.join(self.target.triple).join("release/deps")).map_err(fail)?
        {
            let path = entry.map_err(fail)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".rlib") && !name.starts_with("libseed-") {
                fs::copy(&path, libraries.join(name)).map_err(fail)?;
            }
        }
        fs::remove_dir_all(&built).map_err(fail)?;
        fs::write(libraries.join("complete"), "").map_err(fail)?;
        Ok(root)
    }
}

/// The empty package that a sysroot is built for, in its own workspace.
const SEED: &str =
    "[package]\nname = \"seed\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";

/// The cargo that started this program.
pub(crate) fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Every program of this name on the search path, in its order.
fn on_path(name: &str) -> Vec<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .filter(|program| program.is_file())
        .collect()
}

/// The program on the search path with this name and the highest version suffix, as in Debian
/// (`wasm-ld-22`).
fn newest_on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for entry in env::split_paths(&folders)
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten()
    {
        let file = entry.file_name().to_string_lossy().into_owned();
        if let Some(version) = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|version| version.parse().ok())
        {
            found.push((version, entry.path()));
        }
    }
    found.into_iter().max().map(|(_, path)| path)
}

/// The directory of a compiler's libraries.
fn rustlib(compiler: &Path) -> Option<PathBuf> {
    let sysroot = answer(Command::new(compiler).args(["--print", "sysroot"])).ok()?;
    Some(Path::new(sysroot.trim()).join("lib/rustlib"))
}

fn has_library(compiler: &Path, triple: &str) -> bool {
    rustlib(compiler).is_some_and(|rustlib| rustlib.join(triple).join("lib").is_dir())
}

fn has_source(compiler: &Path) -> bool {
    rustlib(compiler).is_some_and(|rustlib| rustlib.join("src/rust/library/std").is_dir())
}
