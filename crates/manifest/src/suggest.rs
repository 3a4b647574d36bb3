//! "Did you mean": the known word or host operation nearest to one that does not exist.

use wavelock_abi::{HostOperation, WASI_MODULE, WAVELOCK_MODULE};

/// The known word nearest to `written`, if it is near enough: at most a third of its letters differ
/// (a transposition counts once) but not all of them, or it differs only in case or in `-` for `_`.
#[must_use]
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let fold = |word: &str| word.to_lowercase().replace(['-', ' '], "_");
    let folded = fold(written);
    let mut best: Option<(usize, &str)> = None;
    for word in known {
        let other = fold(word);
        if other == folded {
            return Some(word);
        }
        let length = other.chars().count();
        // Skip words much longer than any known one: the edit distance is quadratic.
        if folded.len() > 4 * (length + 4) {
            continue;
        }
        let distance = strsim::osa_distance(&folded, &other);
        let contained = folded.len() >= 4
            && (other.starts_with(&folded) || folded.starts_with(&other) && other.len() >= 4);
        let close = distance <= length.div_ceil(3) && distance < length.max(folded.chars().count());
        if (close || contained) && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, word));
        }
    }
    best.map(|(_, word)| word)
}

/// The host operation probably meant by an import that does not exist: the nearest name in the same
/// module, or else the same name in another module.
fn nearest_import(module: &str, name: &str) -> Option<HostOperation> {
    let of = |module: &'static str| {
        HostOperation::ALL.iter().filter(move |operation| operation.module() == module)
    };
    let own = [WAVELOCK_MODULE, WASI_MODULE].into_iter().find(|known| *known == module);
    let near = own.and_then(|own| {
        nearest(name, of(own).map(|operation| operation.import()))
            .and_then(|near| HostOperation::find(own, near))
    });
    near.or_else(|| {
        HostOperation::ALL
            .iter()
            .copied()
            .find(|operation| operation.import() == name && operation.module() != module)
    })
}

/// A suggestion from `nearest_import` to append to an error; empty if there is none.
#[must_use]
pub fn did_you_mean(module: &str, name: &str) -> String {
    match nearest_import(module, name) {
        Some(meant) if meant.module() == module => format!("; did you mean `{}`?", meant.import()),
        Some(meant) => format!("; did you mean `{}` `{}`?", meant.module(), meant.import()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{did_you_mean, nearest};

    #[test]
    fn imports_are_suggested_from_their_module_or_by_name_from_others() {
        assert_eq!(did_you_mean("wavelock", "yeild"), "; did you mean `yield`?");
        assert_eq!(did_you_mean("wavelock", "tryrecv"), "; did you mean `try_recv`?");
        assert_eq!(did_you_mean("wavelock", "open_file"), "");
        assert_eq!(
            did_you_mean("wavelock", "fd_write"),
            "; did you mean `wasi_snapshot_preview1` `fd_write`?"
        );
        assert_eq!(
            did_you_mean("wasi_unstable", "fd_write"),
            "; did you mean `wasi_snapshot_preview1` `fd_write`?"
        );
        assert_eq!(did_you_mean("env", "spawn"), "; did you mean `wavelock` `spawn`?");
        assert_eq!(did_you_mean("env", "abort"), "");
    }

    #[test]
    fn nearest_finds_typos_and_ignores_unrelated_words() {
        let known = ["lanes", "policy", "quantum_cycles", "frame_cycles", "seed"];
        assert_eq!(nearest("lane", known), Some("lanes"));
        assert_eq!(nearest("frame-cycles", known), Some("frame_cycles"));
        assert_eq!(nearest("FRAME_CYCLES", known), Some("frame_cycles"));
        assert_eq!(nearest("quantum", known), Some("quantum_cycles"));
        assert_eq!(nearest("sede", known), Some("seed"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest("b", ["a", "c"]), None, "nothing of it is left");
    }
}
